-- Queues with bounds are counted: looking at every message with every call would be slow. Other queues do without.
ALTER TABLE mailbox.queue ADD COLUMN counted bool NOT NULL DEFAULT false;

-- What is in a shard of a counted queue: the latest row of each slot, added up. A transaction that changes a count writes the
-- latest row of a slot again, under a new version, and readers look for the latest version first. So they never walk
-- over the versions before it, which stay as long as any transaction is held open. A slot belongs to one transaction
-- at a time; there are several, so that transactions do not wait for each other.
CREATE TABLE mailbox.tally (
  qid int NOT NULL,
  shard int NOT NULL,
  slot int NOT NULL,
  version bigint NOT NULL,
  ready bigint NOT NULL,
  delayed bigint NOT NULL,
  in_flight bigint NOT NULL,
  dead bigint NOT NULL,
  bytes bigint NOT NULL,
  PRIMARY KEY (qid, shard, slot, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- add changes the counts of a shard. It waits for no other transaction: one that finds no free slot is repeated.
CREATE FUNCTION mailbox.add(p_qid int, p_shard int, p_ready bigint, p_delayed bigint, p_in_flight bigint, p_dead bigint, p_bytes bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_slot int := pg_backend_pid() % 32; v_tried int := 0;
BEGIN
  WHILE NOT pg_try_advisory_xact_lock(mailbox.slot_key(p_qid, p_shard, v_slot)) LOOP
    v_tried := v_tried + 1;
    IF v_tried = 32 THEN
      RAISE EXCEPTION 'mailbox: too many transactions change a shard' USING ERRCODE = 'serialization_failure';
    END IF;
    v_slot := (v_slot + 1) % 32;
  END LOOP;
  UPDATE mailbox.tally a SET version = nextval('mailbox.place'), ready = a.ready + p_ready, delayed = a.delayed + p_delayed,
    in_flight = a.in_flight + p_in_flight, dead = a.dead + p_dead, bytes = a.bytes + p_bytes
    WHERE a.qid = p_qid AND a.shard = p_shard AND a.slot = v_slot AND a.version = (SELECT b.version FROM mailbox.tally b
      WHERE b.qid = p_qid AND b.shard = p_shard AND b.slot = v_slot ORDER BY b.version DESC LIMIT 1);
  IF NOT FOUND THEN
    INSERT INTO mailbox.tally VALUES (p_qid, p_shard, v_slot, nextval('mailbox.place'), p_ready, p_delayed, p_in_flight, p_dead, p_bytes);
  END IF;
END $$;

-- slot_key is the number of the advisory lock of a slot; see lock_key. Slots may share one. The bit 44 is that of no queue.
CREATE FUNCTION mailbox.slot_key(p_qid int, p_shard int, p_slot int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT mailbox.lock_key(3, 0, 0) | (1::bigint << 44) | (hashint8extended((p_qid::bigint << 32) | (p_shard << 8) | p_slot, 0) & ((1::bigint << 44) - 1)) $$;

-- counts returns what is in a shard. What transactions of callers have acked is subtracted here until it is collected.
CREATE FUNCTION mailbox.counts(q mailbox.queue, p_shard int,
  OUT ready bigint, OUT delayed bigint, OUT in_flight bigint, OUT dead bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF q.counted THEN
    SELECT coalesce(sum(t.ready), 0), coalesce(sum(t.delayed), 0), coalesce(sum(t.in_flight), 0) - i.messages, coalesce(sum(t.dead), 0),
      coalesce(sum(t.bytes), 0) - i.bytes INTO ready, delayed, in_flight, dead, bytes
      FROM (SELECT count(*) AS messages, coalesce(sum(a.size), 0) AS bytes FROM mailbox.inbox a
        WHERE a.qid = q.qid AND a.shard = p_shard AND a.kind IN ('c', 'g') AND a.size IS NOT NULL) i
      LEFT JOIN (generate_series(0, 31) s CROSS JOIN LATERAL (SELECT * FROM mailbox.tally a
        WHERE a.qid = q.qid AND a.shard = p_shard AND a.slot = s ORDER BY a.version DESC LIMIT 1) t) ON true
      GROUP BY i.messages, i.bytes;
  ELSE
    SELECT coalesce(sum(c.ready), 0), coalesce(sum(c.delayed), 0), coalesce(sum(c.in_flight), 0), coalesce(sum(c.dead), 0), coalesce(sum(c.bytes), 0)
      INTO ready, delayed, in_flight, dead, bytes FROM mailbox.count_rows(q.qid, p_shard) c;
  END IF;
END $$;

-- count_rows counts the messages of a shard, one row for each index that has them.
CREATE FUNCTION mailbox.count_rows(p_qid int, p_shard int)
RETURNS TABLE (ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint) LANGUAGE sql VOLATILE AS $$
  SELECT count(*), 0, 0, 0, coalesce(sum(a.size), 0) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r'
  UNION ALL SELECT count(*), 0, 0, 0, coalesce(sum(a.size), 0) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('b', 's')
  UNION ALL SELECT 0, count(*) FILTER (WHERE a.state <> 'f'), count(*) FILTER (WHERE a.state = 'f'), 0, coalesce(sum(a.size), 0)
    FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f')
  UNION ALL SELECT 0, 0, 0, count(*), 0 FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'x' $$;

-- start_counting counts a queue with bounds, and has every later change counted. The caller holds the locks of its
-- shards; acks do not take them, so it waits for the running ones. What transactions of callers have acked is either gone
-- from the messages, and then its rows in the inbox must not be subtracted, or its rows appear in the inbox later. For a
-- while after the migration, calls may be running that began with functions which do not count.
CREATE FUNCTION mailbox.start_counting(p_qid int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0);
BEGIN
  IF q.counted OR NOT mailbox.bounded(q) OR NOT EXISTS (SELECT FROM mailbox.migration a WHERE a.number = 6 AND a.at < now() - interval '1 minute') THEN
    RETURN;
  END IF;
  PERFORM mailbox.lock(1, p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)));
  PERFORM pg_advisory_xact_lock(mailbox.lock_key(3, p_qid, 0));
  UPDATE mailbox.queue a SET counted = true WHERE a.qid = p_qid;
  WITH known AS (UPDATE mailbox.inbox a SET size = NULL WHERE a.qid = p_qid AND a.kind IN ('c', 'g'))
  INSERT INTO mailbox.tally (qid, shard, slot, version, ready, delayed, in_flight, dead, bytes)
    SELECT p_qid, s, 0, nextval('mailbox.place'), sum(c.ready), sum(c.delayed), sum(c.in_flight), sum(c.dead), sum(c.bytes)
    FROM generate_series(0, q.shards - 1) s CROSS JOIN LATERAL mailbox.count_rows(p_qid, s) c GROUP BY s;
END $$;

-- bounded reports whether a rule of a queue asks how many messages there are.
CREATE FUNCTION mailbox.bounded(q mailbox.queue) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
  SELECT q.max_messages > 0 OR q.max_bytes > 0 OR q.max_in_flight > 0 OR q.ready_count > 0 $$;

-- moved counts a message that has changed from one state to another; null is none.
CREATE FUNCTION mailbox.moved(q mailbox.queue, p_shard int, p_from "char", p_to "char", p_size bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_ready int := 0; v_delayed int := 0; v_in_flight int := 0; v_dead int := 0;
BEGIN
  IF NOT q.counted THEN
    RETURN;
  END IF;
  CASE
  WHEN p_from IN ('r', 'b', 's') THEN v_ready := -1;
  WHEN p_from IN ('d', 'w') THEN v_delayed := -1;
  WHEN p_from = 'f' THEN v_in_flight := -1;
  WHEN p_from = 'x' THEN v_dead := -1;
  ELSE NULL;
  END CASE;
  CASE
  WHEN p_to IN ('r', 'b', 's') THEN v_ready := v_ready + 1;
  WHEN p_to IN ('d', 'w') THEN v_delayed := v_delayed + 1;
  WHEN p_to = 'f' THEN v_in_flight := v_in_flight + 1;
  WHEN p_to = 'x' THEN v_dead := v_dead + 1;
  ELSE NULL;
  END CASE;
  IF v_ready <> 0 OR v_delayed <> 0 OR v_in_flight <> 0 OR v_dead <> 0 THEN
    PERFORM mailbox.add(q.qid, p_shard, v_ready, v_delayed, v_in_flight, v_dead, (v_ready + v_delayed + v_in_flight) * p_size);
  END IF;
END $$;
