-- Statements that read a whole index with some statistics.

-- redrive makes dead letters ready again at the tail, oldest death first: those with these ids, or all that died
-- up to the place p_until. p_until is null in the first call. stopped is set if the queue is full.
CREATE OR REPLACE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint,
  OUT moved int, OUT stopped bool, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); m mailbox.message; t bigint; v_place bigint; v_grp bytea;
BEGIN
  PERFORM mailbox.durable();
  stopped := false;
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0);
  IF t IS NOT NULL THEN
    moved := 0;
    p_until := coalesce(p_until, nextval('mailbox.place'));
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x' AND a.place <= p_until AND (p_ids IS NULL OR a.id = ANY (p_ids))
      ORDER BY a.place LIMIT p_limit LOOP
      q := mailbox.rules(p_qid, m.shard);
      -- Retention may just have removed it. As text, state does not match the condition of a partial index, which might be read to its end.
      CONTINUE WHEN NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state::text = 'x' AND a.place = m.place);
      IF NOT mailbox.room(q, m.shard, m.size) THEN
        stopped := true;
        EXIT;
      END IF;
      v_place := nextval('mailbox.place');
      v_grp := NULL;
      IF q.is_strict THEN
        SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
      END IF;
      UPDATE mailbox.message a SET state = CASE WHEN q.is_strict THEN 's' ELSE 'b' END, place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp
        WHERE a.seq = m.seq;
      IF q.is_strict THEN
        PERFORM mailbox.regroup(p_qid, m.shard, v_grp);
      END IF;
      moved := moved + 1;
      PERFORM mailbox.expire_by_count(q, m.shard, t);
      PERFORM mailbox.retain(q, m.shard, t, true, t);
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- collect moves what transactions have committed into the queue, in the order in which it was sent. done is null if
-- the call has to be made again. pending are those of the transactions p_xids that are under way.
CREATE OR REPLACE FUNCTION mailbox.collect(p_qid int, p_xids text[], p_wide bool,
  OUT done int, OUT pending text[], OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); r mailbox.inbox; v_all int[] := ARRAY(SELECT generate_series(0, q.shards - 1)); t bigint;
BEGIN
  -- Before the inbox is read: what is committed by now is seen below.
  pending := ARRAY(SELECT x FROM unnest(p_xids) x WHERE pg_xact_status(x::xid8) = 'in progress');
  done := 0;
  IF NOT EXISTS (SELECT FROM mailbox.inbox a WHERE a.qid = p_qid) THEN
    RETURN;
  END IF;
  PERFORM mailbox.durable();
  t := mailbox.begin_call(p_qid, v_all, p_wide, 0);
  IF t IS NULL THEN
    done := NULL;
  ELSE
    PERFORM mailbox.lock(1, p_qid, v_all);
    -- With qid = p_qid the order of the primary key would do, and the rows of all queues would be read for it.
    FOR r IN SELECT * FROM mailbox.inbox a WHERE a.qid BETWEEN p_qid AND p_qid ORDER BY a.qid, a.n LIMIT 1000 LOOP
      DELETE FROM mailbox.inbox a WHERE a.n = r.n;
      PERFORM mailbox.collect_one(mailbox.rules(p_qid, r.shard), r, t);
      done := done + 1;
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('redrive', 'collect') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
