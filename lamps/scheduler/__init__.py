"""The scheduler: state machine with SQL truth, budget, clock, controller and backends."""
