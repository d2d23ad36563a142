-- find returns the message of a queue with this id, or nulls. It takes no lock, because it reads all messages of
-- the queue: waiting ones have no index by id.
CREATE FUNCTION mailbox.find(p_qid int, p_id uuid, OUT seq bigint, OUT shard int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  SELECT z.seq, z.shard INTO seq, shard FROM (
    SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x' AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('d', 'w', 'f') AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('b', 's') AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'r' AND a.id = p_id) z LIMIT 1;
END $$;

-- edit changes a message that waits: it is removed, or waits until p_due; 0 is now. It keeps its place, and its age
-- counts from its due time. was is the state that it was in: r ready, d delayed; f in flight and x dead, and nothing
-- was done; n if the message is not known; null if the call has to be made again.
CREATE FUNCTION mailbox.edit(p_qid int, p_id uuid, p_remove bool, p_due bigint, p_wide bool,
  OUT was text, OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); f record; m mailbox.message; t bigint; v_due bigint;
BEGIN
  PERFORM mailbox.durable();
  version := q.version;
  f := mailbox.find(p_qid, p_id);
  IF f.seq IS NULL THEN
    was := 'n';
    RETURN;
  END IF;
  t := mailbox.begin_call(p_qid, ARRAY[f.shard], p_wide, 0);
  IF t IS NOT NULL THEN
    q := mailbox.rules(p_qid, f.shard);
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = f.seq AND a.qid = p_qid;
    was := CASE WHEN m.seq IS NULL THEN 'n' WHEN m.state IN ('b', 's') THEN 'r' WHEN m.state = 'w' THEN 'd' ELSE m.state::text END;
    v_due := greatest(p_due, t);
    IF was IN ('r', 'd') AND p_remove THEN
      PERFORM mailbox.remove(q, m);
    ELSIF was = 'd' OR (was = 'r' AND v_due > t) THEN
      UPDATE mailbox.message a SET born = v_due WHERE a.seq = m.seq;
      PERFORM mailbox.put(q, m, m.place, v_due, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- See 0001/7_plans.sql.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace AND p.proname = 'edit' LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
