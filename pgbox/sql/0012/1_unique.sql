-- keys_held is called beside measure too, and needs the settings of 0001/7_plans.sql then.
ALTER FUNCTION mailbox.keys_held(int) SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off;
