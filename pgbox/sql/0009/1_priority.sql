-- Priorities. priority is null for 0. aged is when the age for the level began, if that is not born: a nack to the tail begins it again.
-- Two states are for ready messages with a priority above 0, so that those without are found as before:
--
--   p  where it was sent: in each priority in the order of places, which is also that of ages
--   h  ready again, or moved here: at any place
ALTER TABLE mailbox.message ADD COLUMN IF NOT EXISTS priority int, ADD COLUMN IF NOT EXISTS aged bigint;
CREATE INDEX IF NOT EXISTS message_level ON mailbox.message (qid, shard, state, priority, place) WHERE state IN ('p', 'h');
-- born > 0 keeps statements that look for places away from it.
CREATE INDEX IF NOT EXISTS message_level_age ON mailbox.message (qid, shard, born, arrived) WHERE state = 'h' AND born > 0;
ALTER TABLE mailbox.inbox ADD COLUMN priority int;

-- leveled says that the queue has had a message with a priority: others compare no heads.
ALTER TABLE mailbox.queue ADD COLUMN aging bigint NOT NULL DEFAULT 60000000, ADD COLUMN leveled bool NOT NULL DEFAULT false;

-- follow_levels notes that a queue has messages with priorities.
CREATE FUNCTION mailbox.follow_levels(p_qid int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.queue a SET leveled = true WHERE a.qid = p_qid AND NOT a.leveled;
END $$;

-- ready_state is the state of a message that is ready again, or comes from another queue.
CREATE FUNCTION mailbox.ready_state(q mailbox.queue, p_priority int) RETURNS "char" LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN q.is_strict THEN 's' WHEN p_priority > 0 THEN 'h' ELSE 'b' END::"char" $$;

-- level is that of a ready message: its priority, and one more for each time of ageing that it has waited.
CREATE FUNCTION mailbox.level(q mailbox.queue, m mailbox.message, t bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN q.aging = 0 THEN coalesce(m.priority, 0)
    ELSE least(9, coalesce(m.priority, 0) + greatest(t - coalesce(m.aged, m.born), 0) / q.aging) END $$;

DROP FUNCTION mailbox.begin_at(int, bigint);

-- begin_at notes for the rest of the call that no sent message of a queue is left up to a place, and up to places for each priority above 0.
CREATE FUNCTION mailbox.begin_at(p_qid int, p_place bigint, p_levels bigint[] DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('mailboxmq.low', p_qid || ' ' || p_place || coalesce(' ' || array_to_string(p_levels, ','), ''), true);
END $$;

DROP FUNCTION mailbox.oldest_ready(int, int);

-- oldest_ready returns the ready message that could be delivered first, or a row of nulls. p_leveled says that there may be some with priorities.
CREATE FUNCTION mailbox.oldest_ready(p_qid int, p_shard int, p_leveled bool DEFAULT false) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; l mailbox.message; v_begin text := current_setting('mailboxmq.low', true); v_low bigint := 0; v_levels bigint[];
BEGIN
  IF split_part(v_begin, ' ', 1) = p_qid::text THEN
    v_low := split_part(v_begin, ' ', 2)::bigint;
    v_levels := string_to_array(nullif(split_part(v_begin, ' ', 3), ''), ',')::bigint[];
  END IF;
  SELECT * INTO m FROM (
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r' AND a.place > v_low ORDER BY a.place LIMIT 1)
    UNION ALL
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('b', 's') ORDER BY a.born, a.arrived LIMIT 1)) z
    ORDER BY z.born, z.arrived LIMIT 1;
  IF p_leveled THEN
    SELECT * INTO l FROM (
      (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'h' AND a.born > 0 ORDER BY a.born, a.arrived LIMIT 1)
      UNION ALL
      (SELECT z.* FROM generate_series(1, 9) k CROSS JOIN LATERAL (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard
        AND a.state = 'p' AND a.priority = k AND a.place > coalesce(v_levels[k], 0) ORDER BY a.place LIMIT 1) z)) y
      ORDER BY y.born, y.arrived LIMIT 1;
    IF l.seq IS NOT NULL AND (m.seq IS NULL OR (l.born, l.arrived) < (m.born, m.arrived)) THEN
      RETURN l;
    END IF;
  END IF;
  RETURN m;
END $$;

-- choose_levels is choose for a queue with priorities. Each has an order by place, and of the first of each the one with the highest level goes next, and
-- of several the one with the lowest place. A message is behind all before it in its order, so its turn is the latest of theirs and its own. No
-- more than v_look of an order are read at a time; if all of them are taken, the next are read.
CREATE FUNCTION mailbox.choose_levels(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  INOUT p_low bigint, INOUT p_levels bigint[], OUT seqs bigint[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE c record; m mailbox.message; v_look int := least(p_max, 8); v_size bigint := 0; v_got int := 0; v_again bool := true;
BEGIN
  seqs := '{}';
  why := 0;
  p_levels := coalesce(p_levels, array_fill(0::bigint, ARRAY[9]));
  WHILE v_again AND v_got < p_max LOOP
    v_again := false;
    FOR c IN SELECT * FROM (
      SELECT h.message, h.place, row_number() OVER orders AS n, max(((9 - mailbox.level(q, h.message, t)) << 56) + h.place) OVER orders AS turn FROM (
        (SELECT 0 AS priority, a.place, a AS message FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('b', 's')
          AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT v_look)
        UNION ALL
        (SELECT 0, a.place, a FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'r' AND a.place > p_low ORDER BY a.place LIMIT v_look)
        UNION ALL
        SELECT k, z.place, z.message FROM generate_series(1, 9) k CROSS JOIN LATERAL (
          (SELECT a.place, a AS message FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'p' AND a.priority = k
            AND a.place > p_levels[k] ORDER BY a.place LIMIT v_look)
          UNION ALL
          (SELECT a.place, a FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'h' AND a.priority = k
            AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT v_look)) z) h
      WINDOW orders AS (PARTITION BY h.priority ORDER BY h.place)) y WHERE y.n <= v_look ORDER BY y.turn, y.place LIMIT p_max - v_got LOOP
      m := c.message;
      IF mailbox.exhausted(q, m) OR m.ends <= t THEN
        IF mailbox.exhausted(q, m) THEN
          PERFORM mailbox.exhaust(q, m, 0, t);
        ELSE
          PERFORM mailbox.end_life(q, m, m.place, t);
        END IF;
        v_again := true; -- another takes its place
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        RETURN;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        RETURN;
      ELSE
        v_got := v_got + 1;
        v_size := v_size + m.size;
        seqs := seqs || m.seq;
        IF m.state = 'r' THEN
          p_low := m.place;
        ELSIF m.state = 'p' THEN
          p_levels[m.priority] := m.place;
        END IF;
      END IF;
      IF c.n = v_look THEN
        v_again := true;
        EXIT;
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- mark sets the marks that are 0: before the first message of the order, or, if it has none, at a place below which none can come. Sends take their places
-- under the lock of the tail and hold it until they have committed, so places become visible in order: nothing comes below a place that was
-- taken from this shard, nor, while no send holds the lock, below a new one. mark does not wait for the lock, and its caller waits for nothing afterwards.
CREATE FUNCTION mailbox.mark(p_qid int, p_shard int, INOUT p_low bigint, INOUT p_levels bigint[]) LANGUAGE plpgsql AS $$
DECLARE v_top bigint;
BEGIN
  IF pg_try_advisory_xact_lock(mailbox.lock_key(1, p_qid, p_shard)) THEN
    v_top := nextval('mailbox.place');
  ELSE
    v_top := (SELECT max(p) FROM unnest(p_levels || p_low) p);
  END IF;
  IF p_low = 0 THEN
    p_low := coalesce((SELECT a.place - 1 FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r' ORDER BY a.place LIMIT 1), v_top);
  END IF;
  FOR k IN 1 .. coalesce(cardinality(p_levels), 0) LOOP
    IF p_levels[k] = 0 THEN
      p_levels[k] := coalesce((SELECT a.place - 1 FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'p' AND a.priority = k
        ORDER BY a.place LIMIT 1), v_top);
    END IF;
  END LOOP;
END $$;

DROP FUNCTION mailbox.count_rows(int, int);

-- count_rows counts the messages of a shard, one row for each index that has them.
CREATE FUNCTION mailbox.count_rows(p_qid int, p_shard int, p_leveled bool DEFAULT true)
RETURNS TABLE (ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT count(*), 0::bigint, 0::bigint, 0::bigint, coalesce(sum(a.size), 0)
      FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r'
    UNION ALL SELECT count(*), 0, 0, 0, coalesce(sum(a.size), 0) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('b', 's')
    UNION ALL SELECT count(*), 0, 0, 0, coalesce(sum(a.size), 0)
      FROM mailbox.message a WHERE p_leveled AND a.qid = p_qid AND a.shard = p_shard AND a.state IN ('p', 'h')
    UNION ALL SELECT 0, count(*) FILTER (WHERE a.state <> 'f'), count(*) FILTER (WHERE a.state = 'f'), 0, coalesce(sum(a.size), 0)
      FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f')
    UNION ALL SELECT 0, 0, 0, count(*), 0 FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'x';
END $$;

-- waiting_of returns the messages of a queue that are not dead.
CREATE OR REPLACE FUNCTION mailbox.waiting_of(p_qid int) RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'r'
    UNION ALL SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('b', 's')
    UNION ALL SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('p', 'h')
    UNION ALL SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('d', 'w', 'f')) $$;

-- moved counts a message that has changed from one state to another; null is none.
CREATE OR REPLACE FUNCTION mailbox.moved(q mailbox.queue, p_shard int, p_from "char", p_to "char", p_size bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_ready int := 0; v_delayed int := 0; v_in_flight int := 0; v_dead int := 0;
BEGIN
  IF NOT q.counted THEN
    RETURN;
  END IF;
  CASE
  WHEN p_from IN ('r', 'b', 's', 'p', 'h') THEN v_ready := -1;
  WHEN p_from IN ('d', 'w') THEN v_delayed := -1;
  WHEN p_from = 'f' THEN v_in_flight := -1;
  WHEN p_from = 'x' THEN v_dead := -1;
  ELSE NULL;
  END CASE;
  CASE
  WHEN p_to IN ('r', 'b', 's', 'p', 'h') THEN v_ready := v_ready + 1;
  WHEN p_to IN ('d', 'w') THEN v_delayed := v_delayed + 1;
  WHEN p_to = 'f' THEN v_in_flight := v_in_flight + 1;
  WHEN p_to = 'x' THEN v_dead := v_dead + 1;
  ELSE NULL;
  END CASE;
  IF v_ready <> 0 OR v_delayed <> 0 OR v_in_flight <> 0 OR v_dead <> 0 THEN
    PERFORM mailbox.add(q.qid, p_shard, v_ready, v_delayed, v_in_flight, v_dead, (v_ready + v_delayed + v_in_flight) * p_size);
  END IF;
END $$;

-- counts returns what is in a shard. What transactions of callers have acked is subtracted here until it is collected.
CREATE OR REPLACE FUNCTION mailbox.counts(q mailbox.queue, p_shard int,
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
      INTO ready, delayed, in_flight, dead, bytes FROM mailbox.count_rows(q.qid, p_shard, q.leveled) c;
  END IF;
END $$;

-- delete_all deletes messages with their bodies, and counts them.
CREATE OR REPLACE FUNCTION mailbox.delete_all(p_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_count bigint := 0; c record;
BEGIN
  FOR c IN WITH gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (p_seqs) RETURNING a.qid, a.shard, a.state, a.size)
    SELECT g.qid, g.shard, count(*) FILTER (WHERE g.state IN ('r', 'b', 's', 'p', 'h')) AS ready, count(*) FILTER (WHERE g.state IN ('d', 'w')) AS delayed,
      count(*) FILTER (WHERE g.state = 'f') AS in_flight, count(*) FILTER (WHERE g.state = 'x') AS dead,
      coalesce(sum(g.size) FILTER (WHERE g.state <> 'x'), 0) AS bytes, count(*) AS messages FROM gone g GROUP BY g.qid, g.shard LOOP
    IF EXISTS (SELECT FROM mailbox.queue a WHERE a.qid = c.qid AND a.counted) THEN
      PERFORM mailbox.add(c.qid, c.shard, -c.ready, -c.delayed, -c.in_flight, -c.dead, -c.bytes);
    END IF;
    v_count := v_count + c.messages;
  END LOOP;
  DELETE FROM mailbox.body b WHERE b.seq = ANY (p_seqs);
  RETURN v_count;
END $$;

-- find returns the message of a queue with this id, or nulls. It takes no lock, because it reads all messages of
-- the queue: waiting ones have no index by id.
CREATE OR REPLACE FUNCTION mailbox.find(p_qid int, p_id uuid, OUT seq bigint, OUT shard int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  SELECT z.seq, z.shard INTO seq, shard FROM (
    SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x' AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('d', 'w', 'f') AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('b', 's') AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('p', 'h') AND a.id = p_id
    UNION ALL SELECT a.seq, a.shard FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'r' AND a.id = p_id) z LIMIT 1;
END $$;

-- put makes a message wait at a place until it is due. A life that is over then is marked so that pass finds it. At another
-- place its age begins again when it is due.
CREATE OR REPLACE FUNCTION mailbox.put(q mailbox.queue, m mailbox.message, p_place bigint, p_due bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
  UPDATE mailbox.message a SET place = p_place, due = p_due, error = m.error,
    ends = CASE WHEN a.ends BETWEEN 1 AND p_at THEN a.ends - mailbox.over() ELSE a.ends END,
    aged = CASE WHEN p_place <> a.place THEN p_due ELSE a.aged END,
    state = CASE WHEN p_due <= p_at THEN mailbox.ready_state(q, a.priority)
      WHEN q.is_strict AND a.deliveries + a.releases > 0 THEN 'w' ELSE 'd' END
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  PERFORM mailbox.moved(q, m.shard, c.old, c.new, m.size);
  IF q.is_strict THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
END $$;

-- arrive makes a message of one queue ready at the tail of another. Its age begins again; its life goes on.
CREATE OR REPLACE FUNCTION mailbox.arrive(q mailbox.queue, t mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int := mailbox.arrival_shard(t, m); v_place bigint := nextval('mailbox.place'); v_grp bytea; c record;
BEGIN
  IF t.is_strict THEN
    SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
  END IF;
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = mailbox.ready_state(t, a.priority),
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error,
    ttl = m.ttl, ends = m.ends, priority = CASE WHEN NOT t.is_strict THEN a.priority END, aged = NULL
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  IF m.ends IS NOT NULL AND NOT t.mortal THEN
    PERFORM mailbox.follow_lives(t.qid);
  END IF;
  IF c.new = 'h' AND NOT t.leveled THEN
    PERFORM mailbox.follow_levels(t.qid);
  END IF;
  PERFORM mailbox.moved(q, m.shard, c.old, NULL, m.size);
  PERFORM mailbox.moved(t, v_shard, NULL, c.new, m.size);
  IF q.is_strict AND m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q.qid, m.shard, m.grp);
  END IF;
  IF t.is_strict THEN
    PERFORM mailbox.regroup(t.qid, v_shard, v_grp);
  END IF;
  PERFORM mailbox.expire_by_count(mailbox.rules(t.qid, v_shard), v_shard, p_at);
  PERFORM set_config('mailboxmq.woken', coalesce(current_setting('mailboxmq.woken', true), '') || t.qid || ' ', true);
END $$;

-- pass ends lives and applies retention by age up to a time: the events before it, and those at it if p_including, in the order of their
-- times. p_low is a time up to which the caller knows that no life is left. It stops when p_budget is used up.
CREATE OR REPLACE FUNCTION mailbox.pass(q mailbox.queue, p_shard int, p_low bigint, p_upto bigint, p_including bool, INOUT p_at bigint, INOUT p_budget int) LANGUAGE plpgsql AS $$
DECLARE l mailbox.message; m mailbox.message; d mailbox.message; v_life bigint; v_ready bigint; v_dead bigint; v_first bigint; v_room bigint;
BEGIN
  WHILE p_budget > 0 LOOP
    v_life := NULL;
    v_ready := NULL;
    v_dead := NULL;
    IF q.mortal THEN
      l := mailbox.first_end(q.qid, p_shard, p_low, p_upto);
      IF l.seq IS NOT NULL THEN
        v_room := coalesce(v_room, mailbox.dead_room(q, p_shard));
        IF v_room > 0 OR NOT mailbox.dead_full(q, l, 'expired') THEN
          v_life := l.ends;
        ELSE
          p_budget := p_budget - mailbox.mark_over(q.qid, p_shard, p_low, p_upto, p_budget);
        END IF;
      END IF;
    END IF;
    IF q.ready_age > 0 THEN
      m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
      IF m.seq IS NOT NULL AND m.born + q.ready_age <= p_upto THEN
        v_room := coalesce(v_room, mailbox.dead_room(q, p_shard));
        IF v_room > 0 OR NOT mailbox.dead_full(q, m, 'expired') THEN
          v_ready := m.born + q.ready_age;
        END IF;
      END IF;
    END IF;
    IF q.dead_age > 0 THEN
      SELECT * INTO d FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' ORDER BY a.place LIMIT 1;
      v_dead := d.born + q.dead_age;
    END IF;
    v_first := least(v_life, v_ready, v_dead);
    EXIT WHEN v_first IS NULL OR v_first > p_upto OR (v_first = p_upto AND NOT p_including);
    p_budget := p_budget - 1;
    IF v_first > p_at THEN
      p_at := v_first;
      PERFORM mailbox.pass_time(q, p_shard);
    END IF;
    IF v_first = v_life THEN
      PERFORM mailbox.expire(q, l, CASE WHEN l.ends > 0 THEN p_at ELSE p_upto END);
      v_room := v_room - 1;
    ELSIF v_first = v_ready THEN
      PERFORM mailbox.expire(q, m, p_at);
      v_room := v_room - 1;
    ELSE
      PERFORM mailbox.tell('r', q, d, d.reason);
      PERFORM mailbox.remove(q, d);
      PERFORM mailbox.expire_by_count(q, p_shard, p_at);
      v_room := NULL;
    END IF;
  END LOOP;
END $$;

-- expire_by_count expires the oldest ready messages beyond the retention by count.
CREATE OR REPLACE FUNCTION mailbox.expire_by_count(q mailbox.queue, p_shard int, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint;
BEGIN
  IF q.ready_count = 0 THEN
    RETURN;
  END IF;
  SELECT c.ready - q.ready_count INTO v_over FROM mailbox.counts(q, p_shard) c;
  WHILE v_over > 0 LOOP
    m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
    EXIT WHEN m.seq IS NULL OR NOT (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired'));
    PERFORM mailbox.expire(q, m, p_at);
    v_over := v_over - 1;
  END LOOP;
END $$;

-- next_due returns when the shard changes next without a call, or null. Callers look again after two seconds, so it looks for deadlines of three: leases
-- that were acked long before they end would otherwise be walked over while a transaction is held open.
CREATE OR REPLACE FUNCTION mailbox.next_due(q mailbox.queue, p_shard int, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_due bigint; v_dead bigint; m mailbox.message; v_until bigint := greatest(t, mailbox.clock()) + 3000000;
BEGIN
  SELECT a.due INTO v_due FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > t AND a.due <= v_until
    ORDER BY a.due LIMIT 1;
  IF q.mortal THEN
    v_due := least(v_due, (SELECT a.ends FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard
      AND a.state NOT IN ('f', 'x') AND a.ends > t AND a.ends <= v_until ORDER BY a.ends LIMIT 1));
  END IF;
  IF q.ready_age > 0 THEN
    m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
    IF m.born + q.ready_age > t THEN
      v_due := least(v_due, m.born + q.ready_age);
    END IF;
  END IF;
  IF q.dead_age > 0 THEN
    SELECT a.born + q.dead_age INTO v_dead FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' ORDER BY a.place LIMIT 1;
    IF v_dead > t THEN
      v_due := least(v_due, v_dead);
    END IF;
  END IF;
  RETURN v_due;
END $$;

-- upstream returns when the queues whose dead letters reach this one change next. It is not among them: it would walk over all leases that
-- are gone while a transaction is held open.
CREATE OR REPLACE FUNCTION mailbox.upstream(p_qid int) RETURNS TABLE (qid int, shard int, due bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH RECURSIVE sources AS (
    SELECT a.qid, a.name, a.shards FROM mailbox.queue a WHERE a.qid = p_qid
    UNION SELECT u.qid, u.name, u.shards FROM sources s JOIN mailbox.queue u ON u.dead_to = s.name AND s.name <> '')
  SELECT s.qid, n, mailbox.next_due(mailbox.rules(s.qid, n), n, 0) FROM sources s CROSS JOIN LATERAL generate_series(0, s.shards - 1) n WHERE s.qid <> p_qid;
END $$;

DROP FUNCTION mailbox.send_from(int, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bool, bigint, bigint, bigint[]);


-- send adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; f the queue is full; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count. p_low and
-- p_low_due are a place and a time up to which the caller knows that nothing is left, as in receive; at, if it is not null, is another such time. p_ttls are the
-- times to live, if a message has one; 0 means that of the queue. p_priorities are null if all are 0. p_levels is p_low for each priority above 0.
CREATE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL, p_levels bigint[] DEFAULT NULL,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool; v_ttl bigint;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ttl := nullif(q.ttl, 0);
  v_ruled := q.is_strict OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0;
  IF v_ruled THEN
    PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
    t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
    at := t;
    IF t IS NULL THEN
      woken := current_setting('mailboxmq.woken', true);
      endings := mailbox.endings();
      RETURN;
    END IF;
  ELSIF 0 <> ANY (p_delays) OR p_ttls IS NOT NULL OR v_ttl IS NOT NULL THEN
    PERFORM mailbox.lock(0, p_qid, p_shards); -- receives look only at deadlines after their last look
  END IF;
  -- Held to the end of the transaction, so that places become visible in order.
  PERFORM mailbox.lock(1, p_qid, p_shards);
  IF p_keys IS NOT NULL AND q.shards > 1 THEN
    PERFORM mailbox.lock(2, p_qid, ARRAY[0]);
  END IF;
  q := mailbox.rules(p_qid, 0);
  t := coalesce(t, mailbox.clock());
  version := q.version;
  IF NOT q.mortal AND (p_ttls IS NOT NULL OR v_ttl IS NOT NULL) THEN
    PERFORM mailbox.follow_lives(p_qid);
  END IF;
  IF NOT q.leveled AND p_priorities IS NOT NULL THEN
    PERFORM mailbox.follow_levels(p_qid);
  END IF;
  codes := '';
  IF v_ruled OR q.counted OR p_keys IS NOT NULL OR p_past IS NOT NULL THEN
    SELECT s.codes, s.ids, s.waits, s.keys INTO codes, ids, waits, keys
      FROM mailbox.send_each(q, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, t, p_ttls, p_priorities) s;
  ELSE
    WITH n AS MATERIALIZED (SELECT nextval('mailbox.place') AS seq, u.* FROM unnest(p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_ttls, p_priorities) AS u(shard, id, body, grp, extra, delay, ttl, priority)),
    b AS (INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT n.seq, t, n.grp, n.extra, n.body FROM n)
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, ttl, ends, priority)
      SELECT n.seq, p_qid, n.shard, CASE WHEN d.due > t THEN 'd' WHEN n.priority > 0 THEN 'p' ELSE 'r' END::"char", n.seq, n.seq, d.due, d.due, length(n.body), n.id, d.ttl, d.due + d.ttl, nullif(n.priority, 0)
      FROM n CROSS JOIN LATERAL (SELECT mailbox.due_at(t, n.delay) AS due, coalesce(nullif(n.ttl, 0), v_ttl) AS ttl) d;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.send_each(mailbox.queue, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bigint, bigint[]);


-- send_each adds messages one by one, for queues with rules and messages with dedup keys.
CREATE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint, p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint) LANGUAGE plpgsql AS $$
DECLARE r mailbox.queue; k record; v_code text; v_seq bigint; v_grp bytea; v_shard int; v_due bigint; v_ttl bigint;
  u record; v_messages bigint[]; v_bytes bigint[]; n int; v_ready int[]; v_delayed int[]; v_size bigint[];
BEGIN
  codes := '';
  ids := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
  waits := array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
  IF p_keys IS NOT NULL THEN
    DELETE FROM mailbox.dedup d WHERE d.qid = q.qid AND d.key = ANY (ARRAY(SELECT a.key FROM mailbox.dedup a
      WHERE a.qid = q.qid AND a.ends <= t ORDER BY a.ends LIMIT 4 * cardinality(p_ids) + 64));
    IF p_count AND q.dedup_max > 0 THEN
      SELECT count(*) INTO keys FROM mailbox.dedup a WHERE a.qid = q.qid AND a.ends > t;
    END IF;
  END IF;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    v_shard := p_shards[i];
    IF r.qid IS NULL OR q.shards > 1 THEN
      r := mailbox.rules(q.qid, v_shard);
    END IF;
    v_code := '';
    IF p_keys[i] IS NOT NULL THEN
      k := mailbox.check_key(q.qid, p_keys[i], p_digests[i], t);
      v_code := k.code;
      ids[i] := k.id;
    END IF;
    n := v_shard + 1;
    IF v_code = '' AND v_messages[n] IS NULL THEN -- counted once for each call
      u := mailbox.used(r, v_shard);
      v_messages[n] := u.messages;
      v_bytes[n] := u.bytes;
    END IF;
    IF v_code = '' AND NOT mailbox.fits(r, v_messages[n], v_bytes[n], length(p_bodies[i])) THEN
      v_code := 'f';
    ELSIF v_code = '' AND p_keys[i] IS NOT NULL AND keys >= q.dedup_max THEN
      v_code := 'w';
      waits[i] := (SELECT greatest(min(a.ends) - t, 1) FROM mailbox.dedup a WHERE a.qid = q.qid AND a.ends > t);
    END IF;
    IF v_code = '' THEN
      v_code := 's';
      v_seq := nextval('mailbox.place');
      v_grp := CASE WHEN q.is_strict THEN coalesce(p_groups[i], '') END;
      v_due := mailbox.due_at(t, p_delays[i]);
      v_ttl := coalesce(nullif(p_ttls[i], 0), nullif(q.ttl, 0));
      IF p_keys[i] IS NOT NULL THEN
        INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, p_keys[i], p_digests[i], p_ids[i], t + q.dedup_window)
          ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
        keys := keys + 1;
      END IF;
      INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, t, p_groups[i], p_extras[i], p_bodies[i]);
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' WHEN p_priorities[i] > 0 THEN 'p' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i], v_ttl, v_due + v_ttl, nullif(p_priorities[i], 0));
      IF q.is_strict THEN
        PERFORM mailbox.regroup(q.qid, v_shard, v_grp);
      END IF;
      v_messages[n] := v_messages[n] + 1;
      v_bytes[n] := v_bytes[n] + length(p_bodies[i]);
      v_ready[n] := coalesce(v_ready[n], 0) + (v_due <= t)::int;
      v_delayed[n] := coalesce(v_delayed[n], 0) + (v_due > t)::int;
      v_size[n] := coalesce(v_size[n], 0) + length(p_bodies[i]);
      IF r.ready_count > 0 THEN
        PERFORM mailbox.add(q.qid, v_shard, v_ready[n], v_delayed[n], 0, 0, v_size[n]); -- it is counted
        v_ready[n] := NULL;
        v_delayed[n] := NULL;
        v_size[n] := NULL;
        PERFORM mailbox.expire_by_count(r, v_shard, t);
        v_messages[n] := NULL; -- some may be gone
      END IF;
    END IF;
    codes := codes || v_code;
  END LOOP;
  FOR i IN 1 .. coalesce(array_upper(v_ready, 1), 0) LOOP
    IF q.counted AND v_ready[i] IS NOT NULL THEN
      PERFORM mailbox.add(q.qid, i - 1, v_ready[i], v_delayed[i], 0, 0, v_size[i]);
    END IF;
  END LOOP;
  IF codes ~ '^s*$' THEN
    codes := '';
  END IF;
END $$;

DROP FUNCTION mailbox.settle(int, text, int[], bigint[], bigint[], uuid[], bigint[], bytea[], bytea[], text[], bool, bigint, bigint);


-- settle settles deliveries, in order. what: a ack, l ack late, n nack (p_numbers: delays, p_reasons: n it failed, r
-- release, p put back), e extend and g extend late (p_numbers: visibilities), k dead-letter (p_reasons, p_types), u undo a
-- delivery that reached no receiver.
-- codes: s settled, x the receipt has expired, f the dead letters are full; null: the call has to be made again.
CREATE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
  p_numbers bigint[], p_causes bytea[], p_types bytea[], p_reasons text[], p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0,
  p_levels bigint[] DEFAULT NULL,
  OUT codes text, OUT grants bigint[], OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; m mailbox.message; t bigint; v_held bool; v_same bool; v_code text; v_granted bigint;
BEGIN
  IF p_what = 'u' OR (p_what IN ('e', 'g') AND 0 < ALL (p_numbers)) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM mailbox.durable();
  END IF;
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
  IF t IS NOT NULL THEN
    codes := '';
    FOR i IN 1 .. cardinality(p_seqs) LOOP
      IF q.qid IS NULL OR q.shards > 1 THEN
        q := mailbox.rules(p_qid, p_shards[i]);
      END IF;
      SELECT * INTO m FROM mailbox.message a WHERE a.seq = p_seqs[i] AND a.qid = p_qid AND a.shard = p_shards[i] AND a.id = p_ids[i] FOR UPDATE;
      v_held := FOUND AND m.state = 'f' AND m.nonce = p_nonces[i] AND m.due > t;
      v_same := FOUND AND m.state <> 'x' AND m.deliveries + m.releases > 0 AND p_nonces[i] = mailbox.new_nonce(q, m.seq, m.place, p_nonces[i] >> 32);
      v_code := 'x';
      v_granted := 0;
      IF v_held THEN
        m.error := coalesce(nullif(p_causes[i], ''), m.error);
        SELECT s.code, s.granted INTO v_code, v_granted FROM mailbox.settle_held(q, m, CASE p_what WHEN 'n' THEN p_reasons[i] ELSE p_what END,
          p_numbers[i], p_types[i], p_reasons[i], t) s;
      ELSIF p_what = 'l' AND v_same THEN
        PERFORM mailbox.remove(q, m);
        v_code := 's';
      ELSIF p_what = 'g' AND v_same AND m.state IN ('b', 'h') AND m.nonce = p_nonces[i] AND coalesce(m.ends > t, true) AND mailbox.may_lease(q, m.shard) THEN
        v_code := 's';
        IF p_numbers[i] > 0 THEN
          UPDATE mailbox.message a SET state = 'f', due = t + p_numbers[i], again = true,
            hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_numbers[i]) ELSE 0 END WHERE a.seq = m.seq;
          PERFORM mailbox.moved(q, m.shard, m.state, 'f', m.size);
        END IF;
      END IF;
      codes := codes || v_code;
      grants[i] := v_granted;
    END LOOP;
    version := q.version;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.usage(int, bool, bool, bigint, bigint);


-- usage counts the messages of a queue by shard.
CREATE FUNCTION mailbox.usage(p_qid int, p_ages bool, p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0, p_levels bigint[] DEFAULT NULL)
RETURNS TABLE (shard int, done bool, ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint, keys bigint,
  oldest_ready bigint, oldest_dead bigint, paused bool, version bigint, woken text, endings text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); t bigint; v_keys bigint; m mailbox.message; v_age bigint; v_dead bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, p_low_due);
  PERFORM mailbox.start_counting(p_qid);
  q := mailbox.rules(p_qid, 0);
  FOR n IN 0 .. q.shards - 1 LOOP
    v_keys := NULL;
    v_age := 0;
    v_dead := 0;
    IF p_ages THEN
      SELECT count(*) INTO v_keys FROM mailbox.dedup d WHERE d.qid = p_qid AND d.ends > t AND n = 0;
      IF q.ready_age > 0 THEN
        m := mailbox.oldest_ready(p_qid, n, q.leveled);
        v_age := coalesce(greatest(t - m.born, 0), 0);
      END IF;
      SELECT greatest(t - min(a.born), 0) INTO v_dead FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'x';
    END IF;
    RETURN QUERY SELECT n, t IS NOT NULL, c.ready, c.delayed, c.in_flight, c.dead, c.bytes,
      v_keys, v_age, coalesce(v_dead, 0), q.paused, q.version, current_setting('mailboxmq.woken', true), mailbox.endings()
      FROM mailbox.counts(q, n) c;
  END LOOP;
END $$;

-- redrive makes dead letters ready again at the tail, with their whole lives, oldest death first: those with these ids, or all that died
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
      UPDATE mailbox.message a SET state = mailbox.ready_state(q, a.priority), place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp,
        ends = t + a.ttl, aged = NULL
        WHERE a.seq = m.seq;
      PERFORM mailbox.moved(q, m.shard, 'x', 'b', m.size);
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

DROP FUNCTION mailbox.edit(int, uuid, bool, bigint, bool);


-- edit changes a message that waits: it is removed, gets another priority, or waits until p_due; 0 is now. It keeps its place, and its age
-- and its life count from its due time. was is the state that it was in: r ready, d delayed; f in flight and x dead, and nothing
-- was done; n if the message is not known; null if the call has to be made again.
CREATE FUNCTION mailbox.edit(p_qid int, p_id uuid, p_remove bool, p_due bigint, p_wide bool, p_priority int DEFAULT NULL,
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
    was := CASE WHEN m.seq IS NULL THEN 'n' WHEN m.state IN ('b', 's', 'p', 'h') THEN 'r' WHEN m.state = 'w' THEN 'd' ELSE m.state::text END;
    v_due := greatest(p_due, t);
    IF was IN ('r', 'd') AND p_remove THEN
      PERFORM mailbox.remove(q, m);
    ELSIF was IN ('r', 'd') AND p_priority IS NOT NULL THEN
      UPDATE mailbox.message a SET priority = nullif(p_priority, 0), state = CASE WHEN was = 'r' THEN mailbox.ready_state(q, p_priority) ELSE a.state END WHERE a.seq = m.seq;
      IF p_priority > 0 AND NOT q.leveled THEN
        PERFORM mailbox.follow_levels(p_qid);
      END IF;
    ELSIF was = 'd' OR (was = 'r' AND v_due > t) THEN
      UPDATE mailbox.message a SET born = v_due, aged = NULL, ends = v_due + a.ttl WHERE a.seq = m.seq;
      PERFORM mailbox.put(q, m, m.place, v_due, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.fire(int, int, text, bigint, bigint, bigint, bool, bytea, bigint[], uuid[], bytea[], bytea[], bytea[], bool, bigint[]);


-- fire changes a schedule and sends its messages, if it has this revision (0: there is none) and p_through is not in the
-- future. p_following is the next revision; a definition of null leaves the one that is stored. The shard is the
-- one that the name selects, so that firings of a schedule take turns. codes: 1 done, 0 not done, f the messages
-- do not fit, m there are too many schedules; null: the call has to be made again.
CREATE FUNCTION mailbox.fire(p_qid int, p_shard int, p_name text, p_revision bigint, p_following bigint, p_through bigint, p_remove bool,
  p_definition bytea, p_dues bigint[], p_ids uuid[], p_bodies bytea[], p_extras bytea[], p_past bytea[], p_wide bool, p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL,
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
        IF NOT q.mortal AND (p_ttls IS NOT NULL OR q.ttl > 0) THEN
          PERFORM mailbox.follow_lives(p_qid);
        END IF;
        IF NOT q.leveled AND p_priorities IS NOT NULL THEN
          PERFORM mailbox.follow_levels(p_qid);
        END IF;
        PERFORM mailbox.send_each(q, array_fill(p_shard, ARRAY[v_runs]), p_ids, p_bodies, NULL, p_extras, array_fill(0::bigint, ARRAY[v_runs]),
          NULL, NULL, p_past, false, t, p_ttls, p_priorities);
      END IF;
      s := mailbox.keep_schedule(p_qid, p_shard, p_name, s, p_following, p_through, p_definition, p_dues, p_ids, at);
    END IF;
    schedule := s;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.send_tx(int, int, uuid, bytea, bytea, bytea, bigint, bytea, bytea, bytea, bytea, bytea, bytea, bigint);


-- send_tx sends a message in the transaction of the caller, and returns the number of the transaction.
CREATE FUNCTION mailbox.send_tx(p_qid int, p_shard int, p_id uuid, p_body bytea, p_group bytea, p_extra bytea, p_delay bigint, p_key bytea,
  p_digest bytea, p_reason bytea, p_queue bytea, p_deliveries bytea, p_error bytea, p_ttl bigint DEFAULT NULL, p_priority int DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_seq bigint := nextval('mailbox.place');
BEGIN
  PERFORM mailbox.begin_tx(p_qid);
  INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, mailbox.clock(), p_group, p_extra, p_body);
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, id, size, delay, key, digest, grp, from_reason, from_queue, from_deliveries, from_error, ttl, priority)
    VALUES (p_qid, p_shard, 's', v_seq, p_id, length(p_body), p_delay, p_key, p_digest, p_group, p_reason, p_queue, p_deliveries, p_error, p_ttl, p_priority);
  RETURN pg_current_xact_id()::text;
END $$;

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used is
-- dropped.
CREATE OR REPLACE FUNCTION mailbox.collect_one(q mailbox.queue, r mailbox.inbox, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k record; m mailbox.message; v_place bigint; v_grp bytea; v_due bigint := mailbox.due_at(t, r.delay);
  v_ttl bigint := coalesce(nullif(r.ttl, 0), nullif(q.ttl, 0));
BEGIN
  IF r.kind IN ('c', 'g') THEN
    IF q.counted AND r.size IS NOT NULL THEN -- null: acked before the queue was counted
      PERFORM mailbox.add(q.qid, r.shard, 0, 0, -1, 0, -r.size);
    END IF;
    IF r.kind = 'g' THEN
      PERFORM mailbox.regroup(q.qid, r.shard, r.grp);
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
        DELETE FROM mailbox.body b WHERE b.seq = r.seq;
        RETURN;
      END IF;
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, r.key, r.digest, r.id, t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
    END IF;
    IF v_ttl IS NOT NULL AND NOT q.mortal THEN
      PERFORM mailbox.follow_lives(q.qid);
    END IF;
    IF r.priority > 0 AND NOT q.leveled THEN
      PERFORM mailbox.follow_levels(q.qid);
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := CASE WHEN q.is_strict THEN coalesce(r.grp, '') END;
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' WHEN r.priority > 0 THEN 'p' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error, v_ttl, v_due + v_ttl, nullif(r.priority, 0));
    IF q.is_strict THEN
      PERFORM mailbox.regroup(q.qid, r.shard, v_grp);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- move makes ready messages of a queue ready at the tail of others: those after the place p_after and up to
-- p_until, which is null in the first call, in order. p_to is the target, or null for the queue that each message
-- died in; p_names are the queues that it may be. failed is full if a target is full, and gone if p_to is not
-- there. moved is null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.move(p_qid int, p_to text, p_names text[], p_limit int, INOUT p_after bigint, INOUT p_until bigint,
  OUT moved int, OUT more bool, OUT failed text, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t mailbox.queue; m mailbox.message; v_now bigint; v_looked int := 0; v_shards int[]; v_advanced int[] := '{}'; v_blocker bigint;
BEGIN
  PERFORM mailbox.durable();
  PERFORM mailbox.lock_wide(p_names || ARRAY(SELECT a.name FROM mailbox.queue a WHERE a.qid = p_qid));
  q := mailbox.rules(p_qid, 0);
  v_shards := ARRAY(SELECT generate_series(0, q.shards - 1));
  more := false;
  failed := '';
  IF p_to IS NOT NULL THEN
    SELECT * INTO t FROM mailbox.queue a WHERE a.name = p_to;
    IF NOT FOUND THEN
      failed := 'gone';
    END IF;
  END IF;
  IF failed = '' THEN
    v_now := mailbox.begin_call(p_qid, v_shards, false, 0);
  END IF;
  IF v_now IS NOT NULL THEN
    moved := 0;
    p_until := coalesce(p_until, nextval('mailbox.place'));
    FOR m IN SELECT z.* FROM unnest(v_shards) s CROSS JOIN LATERAL (
        (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state = 'r' AND a.place > p_after AND a.place <= p_until
          ORDER BY a.place LIMIT 1000)
        UNION ALL
        (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state IN ('b', 's') AND a.place > p_after AND a.place <= p_until
          ORDER BY a.place LIMIT 1000)
        UNION ALL
        (SELECT y.* FROM generate_series(1, CASE WHEN q.leveled THEN 9 ELSE 0 END) k CROSS JOIN unnest('{p,h}'::"char"[]) o CROSS JOIN LATERAL (
          SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state IN ('p', 'h') AND a.state = o AND a.priority = k
            AND a.place > p_after AND a.place <= p_until ORDER BY a.place LIMIT 1000) y)) z ORDER BY z.place LIMIT 1000 LOOP
      IF moved >= p_limit THEN
        more := true;
        EXIT;
      END IF;
      v_looked := v_looked + 1;
      p_after := m.place;
      IF q.is_strict THEN
        SELECT a.place INTO v_blocker FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = m.shard AND a.grp = m.grp
          AND a.state IN ('f', 'w') AND a.grp IS NOT NULL ORDER BY a.place LIMIT 1;
        CONTINUE WHEN v_blocker < m.place;
      END IF;
      IF p_to IS NULL THEN
        SELECT * INTO t FROM mailbox.queue a WHERE a.name = ANY (p_names) AND convert_to(a.name, 'UTF8') = m.from_queue AND a.qid <> p_qid;
        CONTINUE WHEN NOT FOUND;
      END IF;
      IF t.qid <> ALL (v_advanced) THEN
        PERFORM mailbox.advance(mailbox.rules(t.qid, s), s, v_now, 0) FROM generate_series(0, t.shards - 1) s;
        v_advanced := v_advanced || t.qid;
      END IF;
      IF NOT mailbox.room(mailbox.rules(t.qid, mailbox.arrival_shard(t, m)), mailbox.arrival_shard(t, m), m.size) THEN
        failed := 'full';
        EXIT;
      END IF;
      m.from_reason := NULL;
      m.from_queue := NULL;
      m.from_deliveries := NULL;
      m.from_error := NULL;
      PERFORM mailbox.arrive(q, t, m, v_now);
      moved := moved + 1;
    END LOOP;
    more := more OR v_looked = 1000;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- configure creates a queue (p_version is 0) or changes its configuration, if that is still of this version. It
-- reports whether it did. p_rules are the numbers of the settings, in the order of the columns.
CREATE OR REPLACE FUNCTION mailbox.configure(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.durable();
  IF p_version = 0 THEN
    INSERT INTO mailbox.queue (name, incarnation, config, is_strict, drop_expired, dead_to, shards, max_deliveries, max_messages, max_bytes,
      max_in_flight, max_dead, max_hold, dedup_window, dedup_max, ready_age, ready_count, dead_age, dead_count, ttl, aging, counted)
      VALUES (p_name, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules[1], p_rules[2], p_rules[3], p_rules[4], p_rules[5], p_rules[6],
        p_rules[7], p_rules[8], p_rules[9], p_rules[10], p_rules[11], p_rules[12], p_rules[13], coalesce(p_rules[14], 0), coalesce(p_rules[15], 60000000),
        p_rules[3] > 0 OR p_rules[4] > 0 OR p_rules[5] > 0 OR p_rules[11] > 0)
      ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  PERFORM mailbox.lock_queue(p_name);
  UPDATE mailbox.queue a SET version = a.version + 1, config = p_config, drop_expired = p_drop, dead_to = p_dead_to, max_deliveries = p_rules[2],
    max_messages = p_rules[3], max_bytes = p_rules[4], max_in_flight = p_rules[5], max_dead = p_rules[6], max_hold = p_rules[7],
    dedup_window = p_rules[8], dedup_max = p_rules[9], ready_age = p_rules[10], ready_count = p_rules[11], dead_age = p_rules[12],
    dead_count = p_rules[13], ttl = coalesce(p_rules[14], 0), aging = coalesce(p_rules[15], a.aging)
    WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  RETURN FOUND;
END $$;

-- receive leases ready messages to requests, in order. The first row is about the call: request is -1, or -2 if
-- the call has to be made again; seq is the place up to which no sent message is left; nonce is the time;
-- if p_next and a request got nothing, sent_at is when, in the next three seconds, the shard or a queue whose dead letters come here changes next, and deliveries is the
-- number of such queues; first_at is the version of the queue; extra has a character
-- for each request, 1 if only the in-flight limit kept it from getting a message; error has the endings, and
-- body the queues that messages went to; grp has seq for each priority above 0.
CREATE FUNCTION mailbox.receive(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool, p_levels bigint[])
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool, priority int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue; t bigint; v_seqs bigint[]; v_groups bytea[]; v_why int; v_ceiling bigint; v_whys text := ''; v_seed bigint := p_seed;
  v_low bigint := p_low; v_zero bool := false; v_empty bool := false; v_name bytea; v_next bigint; v_sources int := 0;
  v_levels bigint[] := p_levels; v_short bool := false;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); -- a lease that is lost is a redelivery
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, p_low_due);
  IF t IS NULL THEN
    RETURN QUERY SELECT -2, v_low, 0::bigint, 0, 0::bigint, 0::bigint, NULL::uuid, NULL::bytea, NULL::bytea,
      convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false, 0;
    RETURN;
  END IF;
  q := mailbox.rules(p_qid, p_shard);
  v_ceiling := 1000000000;
  IF q.max_in_flight > 0 THEN
    SELECT q.max_in_flight - c.in_flight INTO v_ceiling FROM mailbox.counts(q, p_shard) c;
  END IF;
  FOR i IN 1 .. cardinality(p_max) LOOP
    v_seqs := '{}';
    v_why := 0;
    IF q.paused OR v_empty THEN
      NULL;
    ELSIF q.is_strict THEN
      SELECT c.seqs, c.groups, c.why INTO v_seqs, v_groups, v_why FROM mailbox.choose_strict(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t) c;
    ELSIF q.leveled THEN
      SELECT c.p_low, c.p_levels, c.seqs, c.why INTO v_low, v_levels, v_seqs, v_why FROM mailbox.choose_levels(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low, v_levels) c;
    ELSE
      SELECT c.p_low, c.seqs, c.why INTO v_low, v_seqs, v_why FROM mailbox.choose(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low) c;
    END IF;
    v_whys := v_whys || v_why;
    v_empty := v_seqs = '{}' AND v_why = 0;
    v_short := v_short OR v_seqs = '{}';
    CONTINUE WHEN v_seqs = '{}';
    v_ceiling := v_ceiling - cardinality(v_seqs);
    v_zero := v_zero OR p_vis[i] = 0;
    RETURN QUERY WITH leased AS (
      UPDATE mailbox.message a SET state = 'f', deliveries = a.deliveries + 1, due = t + p_vis[i], first_at = coalesce(a.first_at, t),
        started = a.first_at IS NULL, again = false,
        hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_vis[i]) ELSE 0 END,
        nonce = mailbox.new_nonce(q, a.seq, a.place, v_seed + array_position(v_seqs, a.seq))
        WHERE a.seq = ANY (v_seqs) RETURNING a.*, array_position(v_seqs, a.seq) AS n)
      SELECT i - 1, l.seq, l.nonce, l.deliveries, l.first_at, b.sent_at, l.id, b.grp, b.extra, b.body, l.error,
        l.from_reason, l.from_queue, l.from_deliveries, l.from_error, l.releases > 0, coalesce(l.priority, 0)
      FROM leased l CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = l.seq OFFSET 0) b ORDER BY l.n;
    IF q.counted THEN
      PERFORM mailbox.add(p_qid, p_shard, -cardinality(v_seqs), 0, cardinality(v_seqs), 0, 0);
    END IF;
    v_seed := v_seed + cardinality(v_seqs);
    IF q.is_strict THEN
      FOREACH v_name IN ARRAY v_groups LOOP
        UPDATE mailbox.strict_group g SET served = nextval('mailbox.place') WHERE g.qid = p_qid AND g.shard = p_shard AND g.name = v_name;
        PERFORM mailbox.regroup(p_qid, p_shard, v_name);
      END LOOP;
    END IF;
  END LOOP;
  IF v_zero THEN
    PERFORM mailbox.advance(q, p_shard, t, 0);
  END IF;
  IF p_next AND v_short THEN
    v_next := mailbox.next_due(q, p_shard, t);
    SELECT count(*), least(v_next, min(u.due)) INTO v_sources, v_next FROM mailbox.upstream(p_qid) u;
  END IF;
  IF NOT q.is_strict AND 0 = ANY (v_levels || v_low) THEN -- a full look that took nothing of an order
    SELECT c.p_low, c.p_levels INTO v_low, v_levels FROM mailbox.mark(p_qid, p_shard, v_low, v_levels) c;
  END IF;
  RETURN QUERY SELECT -1, v_low, t, v_sources, q.version, v_next, NULL::uuid, convert_to(array_to_string(v_levels, ' '), 'UTF8'), convert_to(v_whys, 'UTF8'),
    convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false, 0;
END $$;

-- receive is the other one for processes of the version before.
CREATE OR REPLACE FUNCTION mailbox.receive(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool)
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool)
LANGUAGE sql AS $$
  SELECT r.request, r.seq, r.nonce, r.deliveries, r.first_at, r.sent_at, r.id, r.grp, r.extra, r.body, r.error, r.from_reason, r.from_queue, r.from_deliveries,
    r.from_error, r.released FROM mailbox.receive(p_qid, p_shard, p_max, p_bytes, p_vis, p_seed, p_low, p_low_due, p_next, p_wide, NULL) r $$;

-- ack, ack_tx and nack_tx are those of before, but look messages up by their key in any case: as text, state does not match the condition of the index of
-- deadlines, which would be read from now to the last lease. While a transaction is held open that walks over every lease that was acked.
CREATE OR REPLACE FUNCTION mailbox.ack(p_qid int, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[]) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE t bigint; v_counted bool;
BEGIN
  PERFORM mailbox.durable();
  PERFORM pg_advisory_xact_lock_shared(mailbox.lock_key(3, p_qid, 0)); -- see start_counting
  t := mailbox.clock();
  SELECT a.counted INTO v_counted FROM mailbox.queue a WHERE a.qid = p_qid;
  RETURN QUERY WITH held AS MATERIALIZED (
      SELECT a.seq, u.n, u.shard, a.size FROM (SELECT * FROM unnest(p_shards, p_seqs, p_nonces, p_ids) WITH ORDINALITY AS v(shard, seq, nonce, id, n) ORDER BY v.seq) u
      CROSS JOIN LATERAL (SELECT b.seq, b.size FROM mailbox.message b WHERE b.seq = u.seq AND b.qid = p_qid AND b.shard = u.shard AND b.state::text = 'f'
        AND b.nonce = u.nonce AND b.id = u.id AND b.due > t FOR UPDATE) a),
    gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    bodies AS (DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    added AS MATERIALIZED (SELECT mailbox.add(p_qid, h.shard, 0, 0, -count(*), 0, -sum(h.size))
      FROM (SELECT DISTINCT d.seq, d.shard, d.size FROM held d) h WHERE v_counted GROUP BY h.shard)
    SELECT min(h.n)::int FROM held h WHERE (SELECT count(*) FROM added) >= 0 GROUP BY h.seq;
END $$;

CREATE OR REPLACE FUNCTION mailbox.ack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); m mailbox.message;
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state::text = 'f'
    AND a.nonce = p_nonce AND a.due > mailbox.clock() RETURNING * INTO m;
  IF m.seq IS NULL THEN
    RETURN NULL;
  END IF;
  DELETE FROM mailbox.body b WHERE b.seq = p_seq;
  INSERT INTO mailbox.inbox (qid, shard, kind, size, grp) VALUES (p_qid, p_shard, CASE WHEN q.is_strict THEN 'g' ELSE 'c' END, m.size, m.grp);
  RETURN pg_current_xact_id()::text;
END $$;

CREATE OR REPLACE FUNCTION mailbox.nack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid, p_what text, p_delay bigint, p_cause bytea)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); v_nonce bigint; t bigint := mailbox.clock();
BEGIN
  UPDATE mailbox.message a SET nonce = mailbox.new_nonce(q, a.seq, a.place, (a.nonce >> 32) + 1), due = t + 86400000000
    WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state::text = 'f' AND a.nonce = p_nonce AND a.due > t
    RETURNING a.nonce INTO v_nonce;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, nonce, delay, cause) VALUES (p_qid, p_shard, p_what::"char", p_seq, v_nonce, p_delay, p_cause);
  RETURN pg_current_xact_id()::text;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND (p.proname IN ('send_from', 'receive', 'ack', 'settle', 'usage', 'redrive', 'edit', 'send_tx', 'ack_tx', 'nack_tx', 'move') OR (p.proname = 'fire' AND p.pronargs > 3)) LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
