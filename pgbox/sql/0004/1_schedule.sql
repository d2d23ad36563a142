-- Schedules of queues. Times are milliseconds since 1970, and 0 is none. The arrays have an element for each of the
-- latest runs, oldest first.
CREATE TABLE mailbox.schedule (
  qid int NOT NULL,
  name text COLLATE "C" NOT NULL,
  shard int NOT NULL,
  revision bigint NOT NULL,
  through bigint NOT NULL,
  definition bytea NOT NULL,
  run_dues bigint[] NOT NULL DEFAULT '{}',
  run_times bigint[] NOT NULL DEFAULT '{}',
  run_ids uuid[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (qid, name)
) WITH (fillfactor = 50);

-- fit_all reports whether messages with these bodies fit.
CREATE FUNCTION mailbox.fit_all(q mailbox.queue, p_shard int, p_bodies bytea[]) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE u record := mailbox.used(q, p_shard);
BEGIN
  RETURN (q.max_messages = 0 OR u.messages + cardinality(p_bodies) <= q.max_messages)
    AND (q.max_bytes = 0 OR u.bytes + (SELECT sum(length(b)) FROM unnest(p_bodies) b) <= q.max_bytes);
END $$;

-- fire changes a schedule and sends its messages, if it has this revision (0: there is none) and p_through is not in the
-- future. p_following is the next revision; a definition of null leaves the one that is stored. The shard is the
-- one that the name selects, so that firings of a schedule take turns. codes: 1 done, 0 not done, f the messages
-- do not fit, m there are too many schedules; null: the call has to be made again.
CREATE FUNCTION mailbox.fire(p_qid int, p_shard int, p_name text, p_revision bigint, p_following bigint, p_through bigint, p_remove bool,
  p_definition bytea, p_dues bigint[], p_ids uuid[], p_bodies bytea[], p_extras bytea[], p_past bytea[], p_wide bool,
  OUT code text, OUT schedule mailbox.schedule, OUT at bigint, OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; s mailbox.schedule; t bigint; v_runs int := cardinality(p_ids);
BEGIN
  PERFORM mailbox.durable();
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, 0);
  IF t IS NOT NULL THEN
    IF v_runs > 0 THEN
      PERFORM mailbox.lock(1, p_qid, ARRAY[p_shard]);
    END IF;
    q := mailbox.rules(p_qid, p_shard);
    version := q.version;
    at := t / 1000;
    SELECT * INTO s FROM mailbox.schedule a WHERE a.qid = p_qid AND a.name = p_name;
    IF coalesce(s.revision, 0) <> p_revision OR p_through > at THEN
      code := '0';
    ELSIF p_remove THEN
      code := '1';
      DELETE FROM mailbox.schedule a WHERE a.qid = p_qid AND a.name = p_name;
      s := NULL;
    ELSIF s.revision IS NULL AND (SELECT count(*) FROM mailbox.schedule a WHERE a.qid = p_qid AND a.shard = p_shard) >= 1000 THEN
      code := 'm';
    ELSIF v_runs > 0 AND NOT mailbox.fit_all(q, p_shard, p_bodies) THEN
      code := 'f';
    ELSE
      code := '1';
      IF v_runs > 0 THEN
        PERFORM mailbox.send_each(q, array_fill(p_shard, ARRAY[v_runs]), p_ids, p_bodies, NULL, p_extras, array_fill(0::bigint, ARRAY[v_runs]),
          NULL, NULL, p_past, false, t);
      END IF;
      s := mailbox.keep_schedule(p_qid, p_shard, p_name, s, p_following, p_through, p_definition, p_dues, p_ids, at);
    END IF;
    schedule := s;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- keep_schedule stores a schedule after a firing, with the last 10 of its runs.
CREATE FUNCTION mailbox.keep_schedule(p_qid int, p_shard int, p_name text, s mailbox.schedule, p_following bigint, p_through bigint,
  p_definition bytea, p_dues bigint[], p_ids uuid[], p_at bigint) RETURNS mailbox.schedule LANGUAGE plpgsql AS $$
DECLARE v_from int := greatest(cardinality(coalesce(s.run_ids, '{}')) + cardinality(p_ids) - 10, 0) + 1;
BEGIN
  s.qid := p_qid;
  s.shard := p_shard;
  s.name := p_name;
  s.revision := p_following;
  s.through := greatest(coalesce(s.through, 0), p_through);
  s.definition := coalesce(p_definition, s.definition);
  s.run_dues := (coalesce(s.run_dues, '{}') || p_dues)[v_from:];
  s.run_times := (coalesce(s.run_times, '{}') || array_fill(p_at, ARRAY[cardinality(p_ids)]))[v_from:];
  s.run_ids := (coalesce(s.run_ids, '{}') || p_ids)[v_from:];
  INSERT INTO mailbox.schedule AS a SELECT s.*
    ON CONFLICT (qid, name) DO UPDATE SET revision = excluded.revision, through = excluded.through, definition = excluded.definition,
      run_dues = excluded.run_dues, run_times = excluded.run_times, run_ids = excluded.run_ids;
  RETURN s;
END $$;

-- schedules returns the schedule of this name, or, if that is empty, those whose names come after p_after, in order.
CREATE FUNCTION mailbox.schedules(p_qid int, p_name text, p_after text, p_limit int)
RETURNS TABLE (schedule mailbox.schedule, at bigint) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0);
BEGIN
  RETURN QUERY SELECT a, mailbox.clock() / 1000 FROM mailbox.schedule a
    WHERE a.qid = q.qid AND a.name > p_after AND (p_name = '' OR a.name = p_name) ORDER BY a.name LIMIT p_limit;
END $$;

-- delete_queue deletes a queue with everything in it.
CREATE OR REPLACE FUNCTION mailbox.delete_queue(p_name text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_qid int;
BEGIN
  PERFORM mailbox.durable();
  v_qid := mailbox.lock_queue(p_name);
  DELETE FROM mailbox.queue a WHERE a.qid = v_qid;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM mailbox.delete_all(mailbox.waiting_of(v_qid) || mailbox.dead_of(v_qid));
  DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT a.seq FROM mailbox.inbox a WHERE a.qid = v_qid AND a.kind = 's'));
  DELETE FROM mailbox.inbox a WHERE a.qid = v_qid;
  DELETE FROM mailbox.strict_group g WHERE g.qid = v_qid;
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  DELETE FROM mailbox.schedule s WHERE s.qid = v_qid;
  RETURN true;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('fire', 'schedules', 'delete_queue') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
