-- Retention and the bound of dead letters begin at a mark, so that they do not walk over those that are gone while a transaction is held open (decision 0075).
--
-- Dead letters are in the order of their deaths, each at a new place, so a mark is never lowered. It is the low of order 12 in the row of the shard in mailbox.back, which a shard has once a
-- message has died in it; without it dead letters can be at any place. Deaths and looks have the lock of the shard.

-- first_dead returns the first dead letter of a shard, or a row of nulls, and keeps where the next look begins, if that saves one at more than a few places.
CREATE FUNCTION mailbox.first_dead(p_qid int, p_shard int) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE k mailbox.back := mailbox.back_of(p_qid, p_shard); v_mark int := array_position(k.orders, 12); m mailbox.message; v_from bigint := coalesce(k.lows[v_mark], 0); v_upto bigint;
BEGIN
  SELECT * INTO m FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'x' AND a.place >= v_from ORDER BY a.place LIMIT 1;
  IF v_mark IS NOT NULL THEN
    v_upto := coalesce(m.place, nextval('mailbox.place'));
    IF v_upto > v_from + 200 THEN
      k.lows[v_mark] := v_upto;
      PERFORM mailbox.keep_back(k);
    END IF;
  END IF;
  RETURN m;
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
  IF array_position((mailbox.back_of(q.qid, m.shard)).orders, 12) IS NULL THEN
    PERFORM mailbox.include(q.qid, m.shard, 12, 0, 0); -- from now on there is a mark
  END IF;
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(v_state = 'f')::int);
  END IF;
  PERFORM mailbox.trim_dead(q, m.shard);
END $$;

-- trim_dead removes the oldest dead letters beyond the retention by count.
CREATE OR REPLACE FUNCTION mailbox.trim_dead(q mailbox.queue, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint; v_first bigint;
BEGIN
  IF q.dead_count > 0 THEN
    v_first := (mailbox.first_dead(q.qid, p_shard)).place;
    SELECT count(*) - q.dead_count INTO v_over FROM (SELECT FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' AND a.place >= v_first ORDER BY a.place OFFSET 0) z;
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' AND a.place >= v_first
      ORDER BY a.place LIMIT greatest(v_over, 0) LOOP
      PERFORM mailbox.tell('r', q, m, m.reason);
      PERFORM mailbox.remove(q, m);
    END LOOP;
  END IF;
END $$;

-- dead_full reports whether there is no room for a message that dies for this reason. Retention by count, if it
-- is tighter than the bound, makes room instead.
CREATE OR REPLACE FUNCTION mailbox.dead_full(q mailbox.queue, m mailbox.message, p_reason text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_dead bigint; v_first bigint; t mailbox.queue;
BEGIN
  IF q.max_dead = 0 OR (q.dead_count > 0 AND q.dead_count < q.max_dead) THEN
    RETURN false;
  END IF;
  v_first := (mailbox.first_dead(q.qid, m.shard)).place;
  SELECT count(*) INTO v_dead FROM (SELECT FROM mailbox.message a
    WHERE a.qid = q.qid AND a.shard = m.shard AND a.state = 'x' AND a.place >= v_first ORDER BY a.place LIMIT q.max_dead) z;
  IF v_dead < q.max_dead THEN
    RETURN false;
  END IF;
  t := mailbox.target(q, m, p_reason);
  RETURN t.qid IS NULL;
END $$;

-- dead_room returns how many dead letters fit into a shard, or a number that is large enough.
CREATE OR REPLACE FUNCTION mailbox.dead_room(q mailbox.queue, p_shard int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_first bigint;
BEGIN
  IF q.drop_expired OR q.max_dead = 0 OR (q.dead_count > 0 AND q.dead_count < q.max_dead) THEN
    RETURN 1000000000;
  END IF;
  v_first := (mailbox.first_dead(q.qid, p_shard)).place;
  RETURN q.max_dead - (SELECT count(*) FROM (SELECT FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' AND a.place >= v_first ORDER BY a.place LIMIT q.max_dead) z);
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
      d := mailbox.first_dead(q.qid, p_shard);
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
  IF q.limited THEN
    v_due := least(v_due, (SELECT g.wakes FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = p_shard AND g.wakes > t AND g.wakes <= v_until ORDER BY g.wakes LIMIT 1));
  END IF;
  IF q.ready_age > 0 THEN
    m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
    IF m.born + q.ready_age > t THEN
      v_due := least(v_due, m.born + q.ready_age);
    END IF;
  END IF;
  IF q.dead_age > 0 THEN
    v_dead := (mailbox.first_dead(q.qid, p_shard)).born + q.dead_age;
    IF v_dead > t THEN
      v_due := least(v_due, v_dead);
    END IF;
  END IF;
  RETURN v_due;
END $$;
