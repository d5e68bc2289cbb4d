"""Real experts, built once: the ground on which merging and the transfer of updates are measured.

Not a family of its own. `_tasks` reads real labelled texts, `_experts` fine-tunes one encoder on
each, `_build` keeps the results as ordinary Hugging Face and peft folders in the cache.
"""
