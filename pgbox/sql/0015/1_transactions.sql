-- What transactions of callers do takes one call for many messages, is found behind a mark, and leaves a trace where it is dropped.

-- A transaction may commit after others that began later, so no number says up to where the inbox was emptied. The transactions that a look
-- could see do: what it has not seen is of those that were open then, and of later ones. See decision 0072.
ALTER TABLE mailbox.inbox ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX inbox_xid ON mailbox.inbox (qid, xid, n);
DROP INDEX mailbox.inbox_queue;

DROP FUNCTION mailbox.begin_tx(int);

-- begin_tx refuses queues that were deleted, and transactions whose commit waits for less than others do: for the disk, and for that of a standby if
-- one is asked for. p_replicated says that the backend promises that disk.
CREATE FUNCTION mailbox.begin_tx(p_qid int, p_replicated bool DEFAULT false) RETURNS mailbox.queue LANGUAGE plpgsql AS $$
DECLARE v_commit text := current_setting('synchronous_commit');
BEGIN
  IF v_commit = 'off' OR (v_commit = 'local' AND current_setting('synchronous_standby_names') <> '') OR (v_commit IN ('local', 'remote_write') AND p_replicated) THEN
    RAISE EXCEPTION 'mailbox: synchronous_commit is % in this session; want on', v_commit USING ERRCODE = 'MB002';
  END IF;
  RETURN mailbox.rules(p_qid, 0);
END $$;

-- send_all_tx sends messages in the transaction of the caller, in order, and returns the number of the transaction. p_numbers has the shard, delay, time to
-- live, priority and whether to replace of each message. Drivers differ in the arrays that they can pass, so p_data has the columns of all messages, one after
-- the other, and p_sizes their lengths, ten for each message; -1 is null.
CREATE FUNCTION mailbox.send_all_tx(p_qid int, p_replicated bool, p_ids uuid[], p_numbers bigint[], p_data bytea, p_sizes int[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_seq bigint; c bytea[]; v_from int := 1; v_size int;
BEGIN
  PERFORM mailbox.begin_tx(p_qid, p_replicated);
  FOR i IN 0 .. cardinality(p_ids) - 1 LOOP
    c := NULL;
    FOR k IN 1 .. 10 LOOP -- body, group, extra, key, digest, four of the past, unique key
      v_size := p_sizes[i * 10 + k];
      c[k] := CASE WHEN v_size >= 0 THEN substring(p_data FROM v_from FOR v_size) END;
      v_from := v_from + greatest(v_size, 0);
    END LOOP;
    v_seq := nextval('mailbox.place');
    INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, mailbox.clock(), c[2], c[3], c[1]);
    INSERT INTO mailbox.inbox (qid, shard, kind, seq, id, size, delay, ttl, priority, replaces, grp, key, digest, from_reason, from_queue, from_deliveries, from_error, unique_key)
      VALUES (p_qid, p_numbers[i * 5 + 1], 's', v_seq, p_ids[i + 1], length(c[1]), p_numbers[i * 5 + 2], p_numbers[i * 5 + 3], p_numbers[i * 5 + 4], p_numbers[i * 5 + 5] <> 0,
        c[2], c[4], c[5], c[6], c[7], c[8], c[9], c[10]);
  END LOOP;
  RETURN pg_current_xact_id()::text;
END $$;

-- settle_tx acks messages or gives them back in the transaction of the caller. p_whats has a letter for each, a ack, n nack, r release or p put back, and
-- p_numbers its shard, seq, nonce, delay, and where its cause is in p_causes. The answer has a letter for each, s or x if the receipt has expired, and the number of the transaction. Made in time they hold,
-- however late the transaction commits: whatever looks for leases that have ended passes over locked rows. They are locked in the order in which settle does.
CREATE FUNCTION mailbox.settle_tx(p_qid int, p_replicated bool, p_whats text, p_ids uuid[], p_numbers bigint[], p_causes bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid, p_replicated); m mailbox.message; i int; v_shard int; v_seq bigint; v_nonce bigint; v_what text; t bigint; v_done bool[];
BEGIN
  FOR i IN SELECT u - 1 FROM generate_series(1, cardinality(p_ids)) u ORDER BY p_numbers[(u - 1) * 6 + 2] LOOP
    v_shard := p_numbers[i * 6 + 1];
    v_seq := p_numbers[i * 6 + 2];
    v_nonce := p_numbers[i * 6 + 3];
    v_what := substr(p_whats, i + 1, 1);
    t := mailbox.clock();
    m := NULL;
    IF v_what = 'a' THEN
      DELETE FROM mailbox.message a WHERE a.seq = v_seq AND a.qid = p_qid AND a.shard = v_shard AND a.id = p_ids[i + 1] AND a.state::text = 'f'
        AND a.nonce = v_nonce AND a.due > t RETURNING * INTO m;
      IF m.seq IS NOT NULL THEN
        DELETE FROM mailbox.body b WHERE b.seq = v_seq;
        INSERT INTO mailbox.inbox (qid, shard, kind, size, grp) VALUES (p_qid, v_shard, CASE WHEN m.grp IS NOT NULL THEN 'g' ELSE 'c' END, m.size, m.grp);
      END IF;
    ELSE -- until it is moved, the lease is held by a nonce that no receiver has
      UPDATE mailbox.message a SET nonce = mailbox.new_nonce(q, a.seq, a.place, (a.nonce >> 32) + 1), due = t + 86400000000
        WHERE a.seq = v_seq AND a.qid = p_qid AND a.shard = v_shard AND a.id = p_ids[i + 1] AND a.state::text = 'f' AND a.nonce = v_nonce AND a.due > t
        RETURNING * INTO m;
      IF m.seq IS NOT NULL THEN
        INSERT INTO mailbox.inbox (qid, shard, kind, seq, nonce, delay, cause)
          VALUES (p_qid, v_shard, v_what::"char", v_seq, m.nonce, p_numbers[i * 6 + 4], substring(p_causes FROM p_numbers[i * 6 + 5]::int FOR p_numbers[i * 6 + 6]::int));
      END IF;
    END IF;
    v_done[i + 1] := m.seq IS NOT NULL;
  END LOOP;
  RETURN (SELECT string_agg(CASE WHEN d.done THEN 's' ELSE 'x' END, '' ORDER BY d.o) || CASE WHEN bool_or(d.done) THEN ' ' || pg_current_xact_id() ELSE '' END
    FROM unnest(v_done) WITH ORDINALITY d (done, o));
END $$;

-- tell_duplicate notes for the answer of the call that a message of a transaction was dropped, and which one has its key.
CREATE FUNCTION mailbox.tell_duplicate(q mailbox.queue, p_id uuid, p_why text, p_holder uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message;
BEGIN
  m.id := p_id;
  m.deliveries := 0;
  m.error := convert_to(p_holder::text, 'UTF8');
  PERFORM mailbox.tell('u', q, m, p_why);
END $$;

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used, or whose unique key is held, is
-- dropped, or replaces the one that holds it, and is told of.
CREATE OR REPLACE FUNCTION mailbox.collect_one(q mailbox.queue, r mailbox.inbox, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k record; m mailbox.message; h mailbox.message; b mailbox.body; v_place bigint; v_grp bytea; v_due bigint := mailbox.due_at(t, r.delay);
  v_ttl bigint := coalesce(nullif(r.ttl, 0), nullif(q.ttl, 0));
BEGIN
  IF r.kind IN ('c', 'g') THEN
    IF q.counted AND r.size IS NOT NULL THEN -- null: acked before the queue was counted
      PERFORM mailbox.add(q.qid, r.shard, 0, 0, -1, 0, -r.size);
    END IF;
    IF r.kind = 'g' THEN
      PERFORM mailbox.regroup(q, r.shard, r.grp, -1);
    END IF;
  ELSIF r.kind IN ('n', 'r', 'p') THEN
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = r.seq AND a.qid = q.qid AND a.state::text = 'f' AND a.nonce = r.nonce FOR UPDATE;
    IF FOUND THEN
      m.error := coalesce(nullif(r.cause, ''), m.error);
      PERFORM mailbox.settle_held(q, m, r.kind::text, r.delay, NULL, NULL, t);
    END IF;
  ELSE
    IF r.key IS NOT NULL THEN
      k := mailbox.check_key(q.qid, r.key, r.digest, t);
      IF k.code <> '' THEN
        DELETE FROM mailbox.body a WHERE a.seq = r.seq;
        PERFORM mailbox.tell_duplicate(q, r.id, CASE k.code WHEN 'd' THEN 'dedup' ELSE 'conflict' END, k.id);
        RETURN;
      END IF;
    END IF;
    IF r.unique_key IS NOT NULL THEN
      h := mailbox.holder(q.qid, r.unique_key);
    END IF;
    IF r.key IS NOT NULL THEN
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, r.key, r.digest, coalesce(h.id, r.id), t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
    END IF;
    IF v_ttl IS NOT NULL AND NOT q.mortal THEN
      PERFORM mailbox.follow_lives(q.qid);
    END IF;
    IF r.priority > 0 AND NOT q.leveled THEN
      PERFORM mailbox.follow_levels(q.qid);
    END IF;
    IF h.seq IS NOT NULL THEN
      DELETE FROM mailbox.body a WHERE a.seq = r.seq RETURNING * INTO b;
      IF r.replaces AND h.state <> 'f' THEN
        PERFORM mailbox.replace(q, h, b.extra, b.body, ARRAY[r.from_reason, r.from_queue, r.from_deliveries, r.from_error], v_due, v_ttl, t);
        PERFORM mailbox.tell_duplicate(q, r.id, 'replaced', h.id);
      ELSE
        PERFORM mailbox.tell_duplicate(q, r.id, 'unique', h.id);
      END IF;
      RETURN;
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := mailbox.group_of(q, r.grp, r.id);
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority, unique_key)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN v_grp IS NOT NULL THEN 's' WHEN r.priority > 0 THEN 'p' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error, v_ttl, v_due + v_ttl, nullif(r.priority, 0), r.unique_key);
    IF v_grp IS NOT NULL AND v_due <= t THEN
      PERFORM mailbox.regroup(q, r.shard, v_grp, 0);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- collect moves what transactions have committed into the queue: in the order in which each did it, and those that are found committed
-- together by their numbers. p_seen is what an earlier look could see and has moved, or null; seen is the same for this look if it moved less than
-- 1,000 rows. done is null if the call has to be made again. pending are those of the transactions p_xids that are under way.
CREATE FUNCTION mailbox.collect(p_qid int, p_xids text[], p_wide bool, p_seen text, p_low bigint, p_low_due bigint, p_levels bigint[],
  OUT done int, OUT pending text[], OUT woken text, OUT endings text, OUT seen text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); r mailbox.inbox; v_all int[] := ARRAY(SELECT generate_series(0, q.shards - 1)); t bigint;
  v_open xid8[] := '{}'; v_next xid8 := '0';
BEGIN
  -- Before the inbox is read: what is committed by now is seen below.
  pending := ARRAY(SELECT x FROM unnest(p_xids) x WHERE pg_xact_status(x::xid8) = 'in progress');
  seen := pg_current_snapshot()::text;
  IF p_seen IS NOT NULL THEN
    v_open := ARRAY(SELECT pg_snapshot_xip(p_seen::pg_snapshot));
    v_next := pg_snapshot_xmax(p_seen::pg_snapshot);
  END IF;
  done := 0;
  IF NOT EXISTS (SELECT FROM mailbox.inbox a WHERE a.qid = p_qid AND a.xid >= v_next)
    AND NOT EXISTS (SELECT FROM unnest(v_open) o CROSS JOIN LATERAL (SELECT FROM mailbox.inbox a WHERE a.qid = p_qid AND a.xid = o LIMIT 1) b) THEN
    RETURN;
  END IF;
  PERFORM mailbox.durable();
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, v_all, p_wide, p_low_due);
  IF t IS NULL THEN
    done := NULL;
  ELSE
    PERFORM mailbox.lock(1, p_qid, v_all);
    -- With xid = o the order of the primary key would do, and the rows of all queues would be read for it.
    FOR r IN SELECT * FROM (
        (SELECT b.* FROM unnest(v_open) o CROSS JOIN LATERAL (SELECT * FROM mailbox.inbox a WHERE a.qid = p_qid AND a.xid BETWEEN o AND o ORDER BY a.xid, a.n LIMIT 1000) b)
        UNION ALL
        (SELECT * FROM mailbox.inbox a WHERE a.qid = p_qid AND a.xid >= v_next ORDER BY a.xid, a.n LIMIT 1000)) z ORDER BY z.xid, z.n LIMIT 1000 LOOP
      DELETE FROM mailbox.inbox a WHERE a.n = r.n;
      PERFORM mailbox.collect_one(mailbox.rules(p_qid, r.shard), r, t);
      done := done + 1;
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- The other one is called by processes of the version before.
CREATE OR REPLACE FUNCTION mailbox.collect(p_qid int, p_xids text[], p_wide bool,
  OUT done int, OUT pending text[], OUT woken text, OUT endings text) LANGUAGE sql AS $$
  SELECT c.done, c.pending, c.woken, c.endings FROM mailbox.collect(p_qid, p_xids, p_wide, NULL, 0, 0, NULL) c $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND (p.proname IN ('send_all_tx', 'settle_tx') OR (p.proname = 'collect' AND p.pronargs > 3)) LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
