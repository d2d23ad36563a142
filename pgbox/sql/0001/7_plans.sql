-- Plans must not depend on statistics, which say little about tables that are empty now and full a minute later.
-- Settings of a function hold in those it calls.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('send', 'receive', 'ack', 'settle', 'usage', 'purge', 'redrive', 'discard', 'move', 'upstream', 'delete_queue') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
