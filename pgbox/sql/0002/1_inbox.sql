-- What transactions of callers have sent or settled, until it is moved into the queues. Rows become visible when
-- the transaction commits. kind: s send, whose body is in table body; n nack, r release, p put back; g a strict group lost a message.
CREATE TABLE mailbox.inbox (
  n bigint PRIMARY KEY DEFAULT nextval('mailbox.place'),
  qid int NOT NULL,
  shard int NOT NULL,
  kind "char" NOT NULL,
  seq bigint,
  id uuid,
  size int,
  delay bigint,
  key bytea,
  digest bytea,
  grp bytea,
  nonce bigint,
  cause bytea,
  from_reason bytea,
  from_queue bytea,
  from_deliveries bytea,
  from_error bytea
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX inbox_queue ON mailbox.inbox (qid, n);

-- begin_tx refuses transactions whose commit does not wait for the disk, and queues that were deleted.
CREATE FUNCTION mailbox.begin_tx(p_qid int) RETURNS mailbox.queue LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'mailbox: synchronous_commit is off in this session; want on' USING ERRCODE = 'MB002';
  END IF;
  RETURN mailbox.rules(p_qid, 0);
END $$;

-- send_tx sends a message in the transaction of the caller, and returns the number of the transaction.
CREATE FUNCTION mailbox.send_tx(p_qid int, p_shard int, p_id uuid, p_body bytea, p_group bytea, p_extra bytea, p_delay bigint, p_key bytea,
  p_digest bytea, p_reason bytea, p_queue bytea, p_deliveries bytea, p_error bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_seq bigint := nextval('mailbox.place');
BEGIN
  PERFORM mailbox.begin_tx(p_qid);
  INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, mailbox.clock(), p_group, p_extra, p_body);
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, id, size, delay, key, digest, grp, from_reason, from_queue, from_deliveries, from_error)
    VALUES (p_qid, p_shard, 's', v_seq, p_id, length(p_body), p_delay, p_key, p_digest, p_group, p_reason, p_queue, p_deliveries, p_error);
  RETURN pg_current_xact_id()::text;
END $$;

-- ack_tx removes a leased message in the transaction of the caller. It returns null if the receipt has expired. Made
-- in time it holds, however late the transaction commits: whatever looks for leases that have ended passes over
-- locked rows.
CREATE FUNCTION mailbox.ack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); m mailbox.message;
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state = 'f'
    AND a.nonce = p_nonce AND a.due > mailbox.clock() RETURNING * INTO m;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  DELETE FROM mailbox.body b WHERE b.seq = p_seq;
  IF q.is_strict THEN
    INSERT INTO mailbox.inbox (qid, shard, kind, grp) VALUES (p_qid, p_shard, 'g', m.grp);
  END IF;
  RETURN pg_current_xact_id()::text;
END $$;

-- nack_tx gives a leased message back in the transaction of the caller. Until it is moved, the lease is held by a
-- nonce that no receiver has.
CREATE FUNCTION mailbox.nack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid, p_what text, p_delay bigint, p_cause bytea)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); v_nonce bigint; t bigint := mailbox.clock();
BEGIN
  UPDATE mailbox.message a SET nonce = mailbox.new_nonce(q, a.seq, a.place, (a.nonce >> 32) + 1), due = t + 86400000000
    WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state = 'f' AND a.nonce = p_nonce AND a.due > t
    RETURNING a.nonce INTO v_nonce;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, nonce, delay, cause) VALUES (p_qid, p_shard, p_what::"char", p_seq, v_nonce, p_delay, p_cause);
  RETURN pg_current_xact_id()::text;
END $$;

-- collect moves what transactions have committed into the queue, in the order in which it was sent. done is null if
-- the call has to be made again. pending are those of the transactions p_xids that are under way.
CREATE FUNCTION mailbox.collect(p_qid int, p_xids text[], p_wide bool,
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
    FOR r IN SELECT * FROM mailbox.inbox a WHERE a.qid = p_qid ORDER BY a.n LIMIT 1000 LOOP
      DELETE FROM mailbox.inbox a WHERE a.n = r.n;
      PERFORM mailbox.collect_one(mailbox.rules(p_qid, r.shard), r, t);
      done := done + 1;
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used is
-- dropped.
CREATE FUNCTION mailbox.collect_one(q mailbox.queue, r mailbox.inbox, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k record; m mailbox.message; v_place bigint; v_grp bytea; v_due bigint := mailbox.due_at(t, r.delay);
BEGIN
  IF r.kind = 'g' THEN
    PERFORM mailbox.regroup(q.qid, r.shard, r.grp);
  ELSIF r.kind IN ('n', 'r', 'p') THEN
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = r.seq AND a.qid = q.qid AND a.state = 'f' AND a.nonce = r.nonce FOR UPDATE;
    IF FOUND THEN
      m.error := coalesce(nullif(r.cause, ''), m.error);
      PERFORM mailbox.settle_held(q, m, r.kind::text, r.delay, NULL, NULL, t);
    END IF;
  ELSE
    IF r.key IS NOT NULL THEN
      k := mailbox.check_key(q.qid, r.key, r.digest, t);
      IF k.code <> '' THEN
        DELETE FROM mailbox.body b WHERE b.seq = r.seq;
        RETURN;
      END IF;
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, r.key, r.digest, r.id, t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := CASE WHEN q.is_strict THEN coalesce(r.grp, '') END;
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error);
    IF q.is_strict THEN
      PERFORM mailbox.regroup(q.qid, r.shard, v_grp);
    END IF;
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
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
  RETURN true;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('send_tx', 'ack_tx', 'nack_tx', 'collect', 'delete_queue') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
