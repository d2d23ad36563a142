-- Times to live. ttl is that of a message, in microseconds, and ends is when it is over; both are null without one. A life that is
-- over although the message waits, because the dead letters are full, is marked: over() is subtracted from ends.
ALTER TABLE mailbox.message ADD COLUMN IF NOT EXISTS ttl bigint, ADD COLUMN IF NOT EXISTS ends bigint;
CREATE INDEX IF NOT EXISTS message_ends ON mailbox.message (qid, shard, ends, arrived) WHERE state NOT IN ('f', 'x') AND ends IS NOT NULL;
ALTER TABLE mailbox.inbox ADD COLUMN ttl bigint;

-- ttl is for messages that are sent without one. mortal says that the queue has had a message with a time to live: others do without a look.
ALTER TABLE mailbox.queue ADD COLUMN ttl bigint NOT NULL DEFAULT 0, ADD COLUMN mortal bool NOT NULL DEFAULT false;

CREATE FUNCTION mailbox.over() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1::bigint << 62 $$;

-- follow_lives notes that a queue has messages with a time to live. The caller holds the lock of their shard, so calls that come after see it.
CREATE FUNCTION mailbox.follow_lives(p_qid int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.queue a SET mortal = true WHERE a.qid = p_qid AND NOT a.mortal;
END $$;

-- first_end returns the waiting message whose life ended first, up to a time, or a row of nulls. p_low is a time up to which the caller knows
-- that none is left but those that are marked.
CREATE FUNCTION mailbox.first_end(p_qid int, p_shard int, p_low bigint, p_upto bigint) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message;
BEGIN
  SELECT * INTO m FROM mailbox.message a
    WHERE a.qid = p_qid AND a.shard = p_shard AND a.state NOT IN ('f', 'x') AND a.ends < 0 ORDER BY a.ends, a.arrived LIMIT 1;
  IF NOT FOUND THEN
    SELECT * INTO m FROM mailbox.message a
      WHERE a.qid = p_qid AND a.shard = p_shard AND a.state NOT IN ('f', 'x') AND a.ends > p_low AND a.ends <= p_upto
      ORDER BY a.ends, a.arrived LIMIT 1;
  END IF;
  RETURN m;
END $$;

-- mark_over marks lives that are over although their messages wait, and counts them: callers do not look there again.
CREATE FUNCTION mailbox.mark_over(p_qid int, p_shard int, p_low bigint, p_upto bigint, p_limit int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_count int;
BEGIN
  UPDATE mailbox.message m SET ends = m.ends - mailbox.over() WHERE m.seq = ANY (ARRAY(SELECT a.seq FROM mailbox.message a
    WHERE a.qid = p_qid AND a.shard = p_shard AND a.state NOT IN ('f', 'x') AND a.ends > p_low AND a.ends <= p_upto
    ORDER BY a.ends, a.arrived LIMIT p_limit));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- end_life ends a message whose life is over. While the dead letters are full it waits for a year, but ends as soon as there is room.
CREATE FUNCTION mailbox.end_life(q mailbox.queue, m mailbox.message, p_place bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired') THEN
    PERFORM mailbox.expire(q, m, p_at);
  ELSE
    PERFORM mailbox.put(q, m, p_place, p_at + 31622400000000, p_at);
  END IF;
END $$;

-- dead_room returns how many dead letters fit into a shard, or a number that is large enough.
CREATE FUNCTION mailbox.dead_room(q mailbox.queue, p_shard int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF q.drop_expired OR q.max_dead = 0 OR (q.dead_count > 0 AND q.dead_count < q.max_dead) THEN
    RETURN 1000000000;
  END IF;
  RETURN q.max_dead - (SELECT count(*) FROM (SELECT FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' LIMIT q.max_dead) z);
END $$;

-- pass ends lives and applies retention by age up to a time: the events before it, and those at it if p_including, in the order of their
-- times. p_low is a time up to which the caller knows that no life is left. It stops when p_budget is used up.
CREATE FUNCTION mailbox.pass(q mailbox.queue, p_shard int, p_low bigint, p_upto bigint, p_including bool, INOUT p_at bigint, INOUT p_budget int) LANGUAGE plpgsql AS $$
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
      m := mailbox.oldest_ready(q.qid, p_shard);
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

-- retain is pass for callers that have advanced to the time: only lives that waited for room can be over.
CREATE OR REPLACE FUNCTION mailbox.retain(q mailbox.queue, p_shard int, p_upto bigint, p_including bool, INOUT p_at bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF q.ready_age > 0 OR q.dead_age > 0 OR q.mortal THEN
    SELECT p.p_at INTO p_at FROM mailbox.pass(q, p_shard, p_upto, p_upto, p_including, p_at, 1000) p;
  END IF;
END $$;

-- put makes a message wait at a place until it is due. A life that is over then is marked so that pass finds it.
CREATE OR REPLACE FUNCTION mailbox.put(q mailbox.queue, m mailbox.message, p_place bigint, p_due bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
  UPDATE mailbox.message a SET place = p_place, due = p_due, error = m.error,
    ends = CASE WHEN a.ends BETWEEN 1 AND p_at THEN a.ends - mailbox.over() ELSE a.ends END,
    state = CASE WHEN p_due <= p_at THEN CASE WHEN q.is_strict THEN 's' ELSE 'b' END
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
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = CASE WHEN t.is_strict THEN 's' ELSE 'b' END,
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error,
    ttl = m.ttl, ends = m.ends
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  IF m.ends IS NOT NULL AND NOT t.mortal THEN
    PERFORM mailbox.follow_lives(t.qid);
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

-- die makes a message a dead letter, or moves it to the queue of dead letters.
CREATE OR REPLACE FUNCTION mailbox.die(q mailbox.queue, m mailbox.message, p_reason text, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t mailbox.queue := mailbox.target(q, m, p_reason); v_earlier text; v_state "char";
BEGIN
  PERFORM mailbox.tell('d', q, m, p_reason);
  IF t.qid IS NOT NULL THEN
    v_earlier := convert_from(coalesce(m.from_deliveries, '0'), 'UTF8');
    m.from_deliveries := convert_to((m.deliveries + CASE WHEN v_earlier ~ '^[0-9]{1,9}$' THEN v_earlier::int ELSE 0 END)::text, 'UTF8');
    m.from_reason := convert_to(p_reason, 'UTF8');
    m.from_queue := convert_to(q.name, 'UTF8');
    m.from_error := nullif(m.error, '');
    m.ttl := NULL; -- a dead letter is for a person, who may come later
    m.ends := NULL;
    PERFORM mailbox.arrive(q, t, m, p_at);
    RETURN;
  END IF;
  UPDATE mailbox.message a SET state = 'x', place = nextval('mailbox.place'), born = p_at, dead_at = p_at, due = 0,
    reason = p_reason, error = m.error, error_type = m.error_type, grp = NULL
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state INTO v_state;
  PERFORM mailbox.moved(q, m.shard, v_state, 'x', m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
  PERFORM mailbox.trim_dead(q, m.shard);
END $$;

-- requeue makes a message whose delivery is over wait again, unless it was delivered too often, its life is over or it is too old.
CREATE OR REPLACE FUNCTION mailbox.requeue(q mailbox.queue, m mailbox.message, p_place bigint, p_delay bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF mailbox.exhausted(q, m) THEN
    PERFORM mailbox.exhaust(q, m, p_delay, p_at);
  ELSIF m.ends <= p_at THEN
    PERFORM mailbox.end_life(q, m, p_place, p_at);
  ELSIF mailbox.too_old(q, m, p_at) THEN
    PERFORM mailbox.expire(q, m, p_at);
  ELSE
    PERFORM mailbox.put(q, m, p_place, p_at + p_delay, p_at);
  END IF;
  PERFORM mailbox.expire_by_count(q, m.shard, p_at);
END $$;

-- choose picks up to p_max ready messages, in order, with at most p_bytes of bodies, of which the first may be
-- larger. Messages that were delivered too often, or whose life is over, end instead. why is 1 if only the in-flight limit was in the way.
CREATE OR REPLACE FUNCTION mailbox.choose(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  INOUT p_low bigint, OUT seqs bigint[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_size bigint := 0; v_got int := 0; v_again bool := true;
BEGIN
  seqs := '{}';
  why := 0;
  WHILE v_again LOOP
    v_again := false;
    FOR m IN SELECT * FROM (
      (SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('b', 's') AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT p_max)
      UNION ALL
      (SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'r' AND a.place > p_low ORDER BY a.place LIMIT p_max)) z
      ORDER BY z.place LIMIT p_max - v_got LOOP
      IF mailbox.exhausted(q, m) THEN
        PERFORM mailbox.exhaust(q, m, 0, t);
        v_again := true;
        CONTINUE;
      ELSIF m.ends <= t THEN
        PERFORM mailbox.end_life(q, m, m.place, t);
        v_again := true;
        CONTINUE;
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        RETURN;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        RETURN;
      END IF;
      v_got := v_got + 1;
      v_size := v_size + m.size;
      seqs := seqs || m.seq;
      IF m.state = 'r' THEN
        p_low := m.place;
      END IF;
    END LOOP;
    v_again := v_again AND v_got < p_max; -- others take the places of those that ended
  END LOOP;
END $$;

-- choose_strict is choose for a queue with strict groups: group by group, those that were received from
-- longest ago first. The messages that it takes do not block each other.
CREATE OR REPLACE FUNCTION mailbox.choose_strict(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  OUT seqs bigint[], OUT groups bytea[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_name bytea; v_seen bytea[] := '{}'; v_bound bigint; v_size bigint := 0; v_got int := 0; v_before int;
BEGIN
  seqs := '{}';
  groups := '{}';
  why := 0;
  WHILE v_got < p_max LOOP
    SELECT g.name INTO v_name FROM mailbox.strict_group g
      WHERE g.qid = q.qid AND g.shard = p_shard AND g.stands IS NOT NULL AND g.name <> ALL (v_seen) ORDER BY g.stands LIMIT 1;
    EXIT WHEN NOT FOUND;
    SELECT a.place INTO v_bound FROM mailbox.message a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = v_name AND a.state IN ('f', 'w') AND a.grp IS NOT NULL ORDER BY a.place LIMIT 1;
    v_seen := v_seen || v_name;
    v_before := v_got;
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = v_name AND a.state = 's'
      ORDER BY a.place LOOP
      EXIT WHEN v_got >= p_max OR m.place >= v_bound;
      IF mailbox.exhausted(q, m) OR m.ends <= t THEN
        IF mailbox.exhausted(q, m) THEN
          PERFORM mailbox.exhaust(q, m, 0, t);
        ELSE
          PERFORM mailbox.end_life(q, m, m.place, t);
        END IF;
        IF EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state = 'w') THEN
          v_bound := m.place;
        END IF;
        CONTINUE;
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        v_got := p_max;
        EXIT;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        v_got := p_max;
        EXIT;
      END IF;
      v_got := v_got + 1;
      v_size := v_size + m.size;
      seqs := seqs || m.seq;
    END LOOP;
    IF cardinality(seqs) > v_before THEN
      groups := groups || v_name;
    END IF;
  END LOOP;
END $$;

-- next_due returns when the shard changes next without a call, or null.
CREATE OR REPLACE FUNCTION mailbox.next_due(q mailbox.queue, p_shard int, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_due bigint; v_dead bigint; m mailbox.message;
BEGIN
  SELECT a.due INTO v_due FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > t
    ORDER BY a.due LIMIT 1;
  IF q.mortal THEN
    v_due := least(v_due, (SELECT a.ends FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard
      AND a.state NOT IN ('f', 'x') AND a.ends > t ORDER BY a.ends LIMIT 1));
  END IF;
  IF q.ready_age > 0 THEN
    m := mailbox.oldest_ready(q.qid, p_shard);
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

-- advance handles what has fallen due up to now, each at its own time and in the order of those times. p_low is
-- a time up to which the caller knows that nothing is left. It reports false if there is more to do than one
-- call should: the caller commits, and calls again. A row that a settling transaction has locked is passed over:
-- that transaction was in time.
CREATE OR REPLACE FUNCTION mailbox.advance(q mailbox.queue, p_shard int, p_now bigint, p_low bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_at bigint := 0; v_fired int; v_budget int := 1000;
  v_events int := 1000; v_passes bool := q.ready_age > 0 OR q.dead_age > 0 OR q.mortal;
BEGIN
  PERFORM mailbox.trim_dead(q, p_shard);
  LOOP
    v_fired := 0;
    FOR m IN SELECT * FROM mailbox.message a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > p_low AND a.due <= p_now
      ORDER BY a.due, a.arrived LIMIT v_budget FOR UPDATE SKIP LOCKED LOOP
      IF v_passes THEN
        SELECT p.p_at, p.p_budget INTO v_at, v_events FROM mailbox.pass(q, p_shard, p_low, m.due, false, v_at, v_events) p;
        IF v_events <= 0 THEN
          RETURN false;
        END IF;
        -- Its life may just have ended. As text, state does not match the condition of a partial index.
        CONTINUE WHEN q.mortal AND NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.qid = q.qid AND a.state::text = m.state::text AND a.due = m.due);
      END IF;
      IF m.due > v_at THEN
        v_at := m.due;
        PERFORM mailbox.pass_time(q, p_shard);
      END IF;
      PERFORM mailbox.fire(q, m, v_at);
      v_fired := v_fired + 1;
    END LOOP;
    EXIT WHEN v_fired = 0;
    v_budget := v_budget - v_fired;
    IF v_budget <= 0 THEN
      RETURN false;
    END IF;
  END LOOP;
  IF v_passes THEN
    SELECT p.p_at, p.p_budget INTO v_at, v_events FROM mailbox.pass(q, p_shard, p_low, p_now, true, v_at, v_events) p;
    IF v_events <= 0 THEN
      RETURN false;
    END IF;
  END IF;
  PERFORM mailbox.pass_time(q, p_shard);
  PERFORM mailbox.expire_by_count(q, p_shard, p_now);
  RETURN true;
END $$;

DROP FUNCTION mailbox.send_from(int, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bool, bigint, bigint);


-- send adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; f the queue is full; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count. p_low and
-- p_low_due are a place and a time up to which the caller knows that nothing is left, as in receive; at, if it is not null, is another such time. p_ttls are the
-- times to live, if a message has one; 0 means that of the queue.
CREATE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  p_ttls bigint[] DEFAULT NULL,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool; v_ttl bigint;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ttl := nullif(q.ttl, 0);
  v_ruled := q.is_strict OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0;
  IF v_ruled THEN
    PERFORM mailbox.begin_at(p_qid, p_low);
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
  codes := '';
  IF v_ruled OR q.counted OR p_keys IS NOT NULL OR p_past IS NOT NULL THEN
    SELECT s.codes, s.ids, s.waits, s.keys INTO codes, ids, waits, keys
      FROM mailbox.send_each(q, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, t, p_ttls) s;
  ELSE
    WITH n AS MATERIALIZED (SELECT nextval('mailbox.place') AS seq, u.* FROM unnest(p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_ttls) AS u(shard, id, body, grp, extra, delay, ttl)),
    b AS (INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT n.seq, t, n.grp, n.extra, n.body FROM n)
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, ttl, ends)
      SELECT n.seq, p_qid, n.shard, CASE WHEN d.due > t THEN 'd' ELSE 'r' END::"char", n.seq, n.seq, d.due, d.due, length(n.body), n.id, d.ttl, d.due + d.ttl
      FROM n CROSS JOIN LATERAL (SELECT mailbox.due_at(t, n.delay) AS due, coalesce(nullif(n.ttl, 0), v_ttl) AS ttl) d;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.send_each(mailbox.queue, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bigint);


-- send_each adds messages one by one, for queues with rules and messages with dedup keys.
CREATE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint, p_ttls bigint[] DEFAULT NULL,
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
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i], v_ttl, v_due + v_ttl);
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

-- settle settles deliveries, in order. what: a ack, l ack late, n nack (p_numbers: delays, p_reasons: n it failed, r
-- release, p put back), e extend and g extend late (p_numbers: visibilities), k dead-letter (p_reasons, p_types), u undo a
-- delivery that reached no receiver.
-- codes: s settled, x the receipt has expired, f the dead letters are full; null: the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
  p_numbers bigint[], p_causes bytea[], p_types bytea[], p_reasons text[], p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0,
  OUT codes text, OUT grants bigint[], OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; m mailbox.message; t bigint; v_held bool; v_same bool; v_code text; v_granted bigint;
BEGIN
  IF p_what = 'u' OR (p_what IN ('e', 'g') AND 0 < ALL (p_numbers)) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM mailbox.durable();
  END IF;
  PERFORM mailbox.begin_at(p_qid, p_low);
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
      ELSIF p_what = 'g' AND v_same AND m.state = 'b' AND m.nonce = p_nonces[i] AND coalesce(m.ends > t, true) AND mailbox.may_lease(q, m.shard) THEN
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
      UPDATE mailbox.message a SET state = CASE WHEN q.is_strict THEN 's' ELSE 'b' END, place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp,
        ends = t + a.ttl
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

-- edit changes a message that waits: it is removed, or waits until p_due; 0 is now. It keeps its place, and its age
-- and its life count from its due time. was is the state that it was in: r ready, d delayed; f in flight and x dead, and nothing
-- was done; n if the message is not known; null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.edit(p_qid int, p_id uuid, p_remove bool, p_due bigint, p_wide bool,
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
      UPDATE mailbox.message a SET born = v_due, ends = v_due + a.ttl WHERE a.seq = m.seq;
      PERFORM mailbox.put(q, m, m.place, v_due, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.fire(int, int, text, bigint, bigint, bigint, bool, bytea, bigint[], uuid[], bytea[], bytea[], bytea[], bool);


-- fire changes a schedule and sends its messages, if it has this revision (0: there is none) and p_through is not in the
-- future. p_following is the next revision; a definition of null leaves the one that is stored. The shard is the
-- one that the name selects, so that firings of a schedule take turns. codes: 1 done, 0 not done, f the messages
-- do not fit, m there are too many schedules; null: the call has to be made again.
CREATE FUNCTION mailbox.fire(p_qid int, p_shard int, p_name text, p_revision bigint, p_following bigint, p_through bigint, p_remove bool,
  p_definition bytea, p_dues bigint[], p_ids uuid[], p_bodies bytea[], p_extras bytea[], p_past bytea[], p_wide bool, p_ttls bigint[] DEFAULT NULL,
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
        PERFORM mailbox.send_each(q, array_fill(p_shard, ARRAY[v_runs]), p_ids, p_bodies, NULL, p_extras, array_fill(0::bigint, ARRAY[v_runs]),
          NULL, NULL, p_past, false, t, p_ttls);
      END IF;
      s := mailbox.keep_schedule(p_qid, p_shard, p_name, s, p_following, p_through, p_definition, p_dues, p_ids, at);
    END IF;
    schedule := s;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

DROP FUNCTION mailbox.send_tx(int, int, uuid, bytea, bytea, bytea, bigint, bytea, bytea, bytea, bytea, bytea, bytea);


-- send_tx sends a message in the transaction of the caller, and returns the number of the transaction.
CREATE FUNCTION mailbox.send_tx(p_qid int, p_shard int, p_id uuid, p_body bytea, p_group bytea, p_extra bytea, p_delay bigint, p_key bytea,
  p_digest bytea, p_reason bytea, p_queue bytea, p_deliveries bytea, p_error bytea, p_ttl bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_seq bigint := nextval('mailbox.place');
BEGIN
  PERFORM mailbox.begin_tx(p_qid);
  INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, mailbox.clock(), p_group, p_extra, p_body);
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, id, size, delay, key, digest, grp, from_reason, from_queue, from_deliveries, from_error, ttl)
    VALUES (p_qid, p_shard, 's', v_seq, p_id, length(p_body), p_delay, p_key, p_digest, p_group, p_reason, p_queue, p_deliveries, p_error, p_ttl);
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
    IF v_ttl IS NOT NULL AND NOT q.mortal THEN
      PERFORM mailbox.follow_lives(q.qid);
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := CASE WHEN q.is_strict THEN coalesce(r.grp, '') END;
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error, v_ttl, v_due + v_ttl);
    IF q.is_strict THEN
      PERFORM mailbox.regroup(q.qid, r.shard, v_grp);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- configure creates a queue (p_version is 0) or changes its configuration, if that is still of this version. It
-- reports whether it did. p_rules are the numbers of the settings, in the order of the columns.
CREATE OR REPLACE FUNCTION mailbox.configure(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.durable();
  IF p_version = 0 THEN
    INSERT INTO mailbox.queue (name, incarnation, config, is_strict, drop_expired, dead_to, shards, max_deliveries, max_messages, max_bytes,
      max_in_flight, max_dead, max_hold, dedup_window, dedup_max, ready_age, ready_count, dead_age, dead_count, ttl, counted)
      VALUES (p_name, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules[1], p_rules[2], p_rules[3], p_rules[4], p_rules[5], p_rules[6],
        p_rules[7], p_rules[8], p_rules[9], p_rules[10], p_rules[11], p_rules[12], p_rules[13], coalesce(p_rules[14], 0),
        p_rules[3] > 0 OR p_rules[4] > 0 OR p_rules[5] > 0 OR p_rules[11] > 0)
      ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  PERFORM mailbox.lock_queue(p_name);
  UPDATE mailbox.queue a SET version = a.version + 1, config = p_config, drop_expired = p_drop, dead_to = p_dead_to, max_deliveries = p_rules[2],
    max_messages = p_rules[3], max_bytes = p_rules[4], max_in_flight = p_rules[5], max_dead = p_rules[6], max_hold = p_rules[7],
    dedup_window = p_rules[8], dedup_max = p_rules[9], ready_age = p_rules[10], ready_count = p_rules[11], dead_age = p_rules[12],
    dead_count = p_rules[13], ttl = coalesce(p_rules[14], 0)
    WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  RETURN FOUND;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND (p.proname IN ('send_from', 'settle', 'redrive', 'edit', 'send_tx') OR (p.proname = 'fire' AND p.pronargs > 3)) LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
