"""Clusters of Ray: nodes started safely, searches as jobs, and a doctor that looks at both.

Nothing of the distribution is ours: Ray's own launcher, Jobs API and dashboard do the work. This
package adds what they leave to the user: a token before anything listens, loopback unless told
otherwise, one job per name, no secret where others can read it.
"""
