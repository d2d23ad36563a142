-- The rules of a shard: what time does, deaths, retention, strict groups. They mirror internal/engine.
-- Callers hold the lock of the shard.

CREATE FUNCTION mailbox.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- lock_key is the number of an advisory lock, which the whole database shares. kind is 0 for the lock of a
-- shard, 1 for the lock of its tail, and 2 for the dedup keys of a queue.
CREATE FUNCTION mailbox.lock_key(p_kind int, p_qid int, p_shard int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT ((hashtext('mailbox.')::bigint & 65535) << 47) | (p_kind::bigint << 45) | (p_qid::bigint << 12) | p_shard $$;

-- lock locks shards, in order. Every function takes the locks of shards before those of tails, and each in
-- the order of their numbers, so that no two functions wait for each other.
CREATE FUNCTION mailbox.lock(p_kind int, p_qid int, p_shards int[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'mailbox: transaction isolation is %; want read committed', current_setting('transaction_isolation');
  END IF;
  FOR v_shard IN SELECT DISTINCT s FROM unnest(p_shards) s ORDER BY s LOOP
    PERFORM pg_advisory_xact_lock(mailbox.lock_key(p_kind, p_qid, v_shard));
  END LOOP;
END $$;

-- lock_wide locks all shards of these queues and of those that their dead letters can reach, so that messages
-- can move between them. The functions called afterwards find the queues in mailboxmq.wide.
CREATE FUNCTION mailbox.lock_wide(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_all int[]; q record;
BEGIN
  WITH RECURSIVE reached AS (
    SELECT a.qid, a.dead_to FROM mailbox.queue a WHERE a.name = ANY (p_names)
    UNION SELECT t.qid, t.dead_to FROM reached r JOIN mailbox.queue t ON t.name = r.dead_to)
  SELECT array_agg(r.qid) INTO v_all FROM reached r;
  FOR q IN SELECT a.qid, a.shards FROM mailbox.queue a WHERE a.qid = ANY (v_all) ORDER BY a.qid LOOP
    PERFORM mailbox.lock(0, q.qid, ARRAY(SELECT generate_series(0, q.shards - 1)));
  END LOOP;
  PERFORM set_config('mailboxmq.wide', ',' || array_to_string(v_all, ',') || ',', true);
END $$;

CREATE FUNCTION mailbox.is_wide() RETURNS bool LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(current_setting('mailboxmq.wide', true), '') <> '' $$;

-- share is the part of a bound that falls to a shard. The parts add up to the whole.
CREATE FUNCTION mailbox.share(p_bound bigint, p_shards int, p_shard int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT p_bound / p_shards + (p_shard < p_bound % p_shards)::int $$;

-- rules returns a queue with the bounds of one shard. A queue that was deleted raises MB404.
CREATE FUNCTION mailbox.rules(p_qid int, p_shard int) RETURNS mailbox.queue LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue;
BEGIN
  SELECT * INTO q FROM mailbox.queue a WHERE a.qid = p_qid;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'mailbox: no such queue' USING ERRCODE = 'MB404';
  END IF;
  IF q.shards > 1 THEN
    q.max_messages := mailbox.share(q.max_messages, q.shards, p_shard);
    q.max_bytes := mailbox.share(q.max_bytes, q.shards, p_shard);
    q.max_in_flight := mailbox.share(q.max_in_flight, q.shards, p_shard);
    q.max_dead := mailbox.share(q.max_dead, q.shards, p_shard);
    q.ready_count := mailbox.share(q.ready_count, q.shards, p_shard);
    q.dead_count := mailbox.share(q.dead_count, q.shards, p_shard);
  END IF;
  RETURN q;
END $$;

-- shard_of is the shard that a text belongs to; send.go computes the same.
CREATE FUNCTION mailbox.shard_of(p_text bytea, p_shards int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT ('x' || left(md5(p_text), 6))::bit(24)::int % p_shards $$;

-- used returns how many messages wait in a shard, and their bytes, as far as the queue bounds them.
CREATE FUNCTION mailbox.used(q mailbox.queue, p_shard int, OUT messages bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  messages := 0;
  bytes := 0;
  IF q.max_messages > 0 THEN
    SELECT count(*) INTO messages FROM (
      (SELECT 1 FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state = 'r' LIMIT q.max_messages)
      UNION ALL (SELECT 1 FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state IN ('b', 's') LIMIT q.max_messages)
      UNION ALL (SELECT 1 FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state IN ('d', 'w', 'f') LIMIT q.max_messages)) z;
  END IF;
  IF q.max_bytes > 0 THEN
    SELECT coalesce(sum(z.size), 0) INTO bytes FROM (
      SELECT m.size FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state = 'r'
      UNION ALL SELECT m.size FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state IN ('b', 's')
      UNION ALL SELECT m.size FROM mailbox.message m WHERE m.qid = q.qid AND m.shard = p_shard AND m.state IN ('d', 'w', 'f')) z;
  END IF;
END $$;

-- fits reports whether one more message with a body of this size fits beside those that wait.
CREATE FUNCTION mailbox.fits(q mailbox.queue, p_messages bigint, p_bytes bigint, p_size bigint) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
  SELECT (q.max_messages = 0 OR p_messages < q.max_messages) AND (q.max_bytes = 0 OR p_bytes + p_size <= q.max_bytes) $$;

-- room reports whether one more message with a body of this size fits.
CREATE FUNCTION mailbox.room(q mailbox.queue, p_shard int, p_size bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE u record;
BEGIN
  u := mailbox.used(q, p_shard);
  RETURN mailbox.fits(q, u.messages, u.bytes, p_size);
END $$;

-- tell notes an ending for the answer of the call: d died, r a dead letter was removed, x dropped.
CREATE FUNCTION mailbox.tell(p_kind text, q mailbox.queue, m mailbox.message, p_reason text) RETURNS void LANGUAGE sql AS $$
  SELECT set_config('mailboxmq.endings', coalesce(current_setting('mailboxmq.endings', true), '') || p_kind || ' '
    || encode(convert_to(q.name, 'UTF8'), 'hex') || ' ' || m.id || ' ' || p_reason || ' ' || m.deliveries || ' '
    || encode(substring(coalesce(m.error, '') FROM 1 FOR 200), 'hex') || E'\n', true) $$;

CREATE FUNCTION mailbox.endings() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(current_setting('mailboxmq.endings', true), '') $$;

-- regroup finds out whether a group can be received from: its first ready message is before all that block it.
CREATE FUNCTION mailbox.regroup(p_qid int, p_shard int, p_name bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_head bigint; v_blocker bigint; v_can bool;
BEGIN
  SELECT m.place INTO v_head FROM mailbox.message m
    WHERE m.qid = p_qid AND m.shard = p_shard AND m.grp = p_name AND m.state = 's' ORDER BY m.place LIMIT 1;
  SELECT m.place INTO v_blocker FROM mailbox.message m
    WHERE m.qid = p_qid AND m.shard = p_shard AND m.grp = p_name AND m.state IN ('f', 'w') AND m.grp IS NOT NULL ORDER BY m.place LIMIT 1;
  v_can := v_head IS NOT NULL AND (v_blocker IS NULL OR v_head < v_blocker);
  INSERT INTO mailbox.strict_group AS g (qid, shard, name, stands, idle)
    VALUES (p_qid, p_shard, p_name, CASE WHEN v_can THEN v_head END, v_head IS NULL AND v_blocker IS NULL)
    ON CONFLICT (qid, shard, name) DO UPDATE SET stands = CASE WHEN v_can THEN greatest(v_head, g.served) END, idle = excluded.idle;
END $$;

-- pass_time forgets when groups that have stayed without messages were last received from.
CREATE FUNCTION mailbox.pass_time(q mailbox.queue, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF q.is_strict THEN
    DELETE FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = p_shard AND g.idle;
  END IF;
END $$;

-- put makes a message wait at a place until it is due.
CREATE FUNCTION mailbox.put(q mailbox.queue, m mailbox.message, p_place bigint, p_due bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.message a SET place = p_place, due = p_due, error = m.error,
    state = CASE WHEN p_due <= p_at THEN CASE WHEN q.is_strict THEN 's' ELSE 'b' END
      WHEN q.is_strict AND a.deliveries + a.releases > 0 THEN 'w' ELSE 'd' END
    WHERE a.seq = m.seq;
  IF q.is_strict THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
END $$;

-- remove removes a message.
CREATE FUNCTION mailbox.remove(q mailbox.queue, m mailbox.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = m.seq;
  DELETE FROM mailbox.body a WHERE a.seq = m.seq;
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
END $$;

-- returns_to reports whether the dead letters of a queue come back to it.
CREATE FUNCTION mailbox.returns_to(q mailbox.queue) RETURNS bool LANGUAGE sql STABLE AS $$
  WITH RECURSIVE reached AS (
    SELECT a.name, a.dead_to FROM mailbox.queue a WHERE a.name = q.dead_to
    UNION SELECT t.name, t.dead_to FROM reached r JOIN mailbox.queue t ON t.name = r.dead_to)
  SELECT EXISTS (SELECT FROM reached r WHERE r.name = q.name) $$;

-- target returns the queue that a message which dies for this reason goes to, with the rules of its shard; a
-- row of nulls if it stays. Messages move only where all locks are held: MB001 asks for the call to be
-- repeated with them.
CREATE FUNCTION mailbox.target(q mailbox.queue, m mailbox.message, p_reason text) RETURNS mailbox.queue LANGUAGE plpgsql AS $$
DECLARE t mailbox.queue; none mailbox.queue;
BEGIN
  IF q.dead_to = '' THEN
    RETURN none;
  ELSIF NOT mailbox.is_wide() THEN
    RAISE EXCEPTION 'mailbox: a message moves to another queue' USING ERRCODE = 'MB001';
  ELSIF p_reason = 'expired' AND mailbox.returns_to(q) THEN
    RETURN none;
  END IF;
  SELECT * INTO t FROM mailbox.queue a WHERE a.name = q.dead_to;
  IF NOT FOUND THEN
    RETURN none;
  ELSIF strpos(current_setting('mailboxmq.wide', true), ',' || t.qid || ',') = 0 THEN
    RAISE EXCEPTION 'mailbox: the target of dead letters has changed' USING ERRCODE = 'serialization_failure';
  END IF;
  t := mailbox.rules(t.qid, mailbox.arrival_shard(t, m));
  IF NOT mailbox.room(t, mailbox.arrival_shard(t, m), m.size) THEN
    RETURN none;
  END IF;
  RETURN t;
END $$;

-- arrival_shard is the shard of a message that comes from another queue.
CREATE FUNCTION mailbox.arrival_shard(t mailbox.queue, m mailbox.message) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN t.shards = 1 THEN 0
    ELSE mailbox.shard_of(coalesce((SELECT b.grp FROM mailbox.body b WHERE b.seq = m.seq), CASE WHEN t.is_strict THEN ''::bytea ELSE uuid_send(m.id) END), t.shards) END $$;

-- arrive makes a message of one queue ready at the tail of another. Its age begins again.
CREATE FUNCTION mailbox.arrive(q mailbox.queue, t mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int := mailbox.arrival_shard(t, m); v_place bigint := nextval('mailbox.place'); v_grp bytea;
BEGIN
  IF t.is_strict THEN
    SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
  END IF;
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = CASE WHEN t.is_strict THEN 's' ELSE 'b' END,
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error
    WHERE a.seq = m.seq;
  IF q.is_strict AND m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q.qid, m.shard, m.grp);
  END IF;
  IF t.is_strict THEN
    PERFORM mailbox.regroup(t.qid, v_shard, v_grp);
  END IF;
  PERFORM mailbox.expire_by_count(mailbox.rules(t.qid, v_shard), v_shard, p_at);
  PERFORM set_config('mailboxmq.woken', coalesce(current_setting('mailboxmq.woken', true), '') || t.qid || ' ', true);
END $$;

-- dead_full reports whether there is no room for a message that dies for this reason. Retention by count, if it
-- is tighter than the bound, makes room instead.
CREATE FUNCTION mailbox.dead_full(q mailbox.queue, m mailbox.message, p_reason text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_dead bigint; t mailbox.queue;
BEGIN
  IF q.max_dead = 0 OR (q.dead_count > 0 AND q.dead_count < q.max_dead) THEN
    RETURN false;
  END IF;
  SELECT count(*) INTO v_dead FROM (SELECT FROM mailbox.message a
    WHERE a.qid = q.qid AND a.shard = m.shard AND a.state = 'x' LIMIT q.max_dead) z;
  IF v_dead < q.max_dead THEN
    RETURN false;
  END IF;
  t := mailbox.target(q, m, p_reason);
  RETURN t.qid IS NULL;
END $$;

-- die makes a message a dead letter, or moves it to the queue of dead letters.
CREATE FUNCTION mailbox.die(q mailbox.queue, m mailbox.message, p_reason text, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t mailbox.queue := mailbox.target(q, m, p_reason); v_earlier text;
BEGIN
  PERFORM mailbox.tell('d', q, m, p_reason);
  IF t.qid IS NOT NULL THEN
    v_earlier := convert_from(coalesce(m.from_deliveries, '0'), 'UTF8');
    m.from_deliveries := convert_to((m.deliveries + CASE WHEN v_earlier ~ '^[0-9]{1,9}$' THEN v_earlier::int ELSE 0 END)::text, 'UTF8');
    m.from_reason := convert_to(p_reason, 'UTF8');
    m.from_queue := convert_to(q.name, 'UTF8');
    m.from_error := nullif(m.error, '');
    PERFORM mailbox.arrive(q, t, m, p_at);
    RETURN;
  END IF;
  UPDATE mailbox.message a SET state = 'x', place = nextval('mailbox.place'), born = p_at, dead_at = p_at, due = 0,
    reason = p_reason, error = m.error, error_type = m.error_type, grp = NULL
    WHERE a.seq = m.seq;
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
  PERFORM mailbox.trim_dead(q, m.shard);
END $$;

-- trim_dead removes the oldest dead letters beyond the retention by count.
CREATE FUNCTION mailbox.trim_dead(q mailbox.queue, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint;
BEGIN
  IF q.dead_count > 0 THEN
    SELECT count(*) - q.dead_count INTO v_over FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x';
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x'
      ORDER BY a.place LIMIT greatest(v_over, 0) LOOP
      PERFORM mailbox.tell('r', q, m, m.reason);
      PERFORM mailbox.remove(q, m);
    END LOOP;
  END IF;
END $$;

-- end_delivery counts the delivery of a message that is over, or takes it back: with r (release) and p (put back),
-- if the message was not given back too often before (driver.MaxReleases). A delivery that was leased again had ended,
-- and was counted, before. The receipt of a delivery that was given back cannot lease the message again.
CREATE FUNCTION mailbox.end_delivery(m mailbox.message, p_what text) RETURNS mailbox.message LANGUAGE plpgsql AS $$
BEGIN
  IF p_what = 'n' AND m.releases = 0 THEN
    RETURN m;
  END IF;
  IF p_what <> 'n' THEN
    m.nonce := 0;
  END IF;
  IF p_what = 'n' OR m.releases >= 16 OR m.again THEN
    m.releases := 0;
  ELSE
    m.releases := m.releases + 1;
    m.deliveries := m.deliveries - 1;
    m.first_at := CASE WHEN NOT m.started THEN m.first_at END;
  END IF;
  UPDATE mailbox.message a SET nonce = m.nonce, releases = m.releases, deliveries = m.deliveries, first_at = m.first_at WHERE a.seq = m.seq;
  RETURN m;
END $$;

-- exhausted reports whether a message has used up its deliveries.
CREATE FUNCTION mailbox.exhausted(q mailbox.queue, m mailbox.message) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
  SELECT q.max_deliveries > 0 AND m.deliveries >= q.max_deliveries $$;

-- too_old reports whether a message is past its retention and may expire.
CREATE FUNCTION mailbox.too_old(q mailbox.queue, m mailbox.message, p_at bigint) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  RETURN q.ready_age > 0 AND m.born + q.ready_age <= p_at AND (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired'));
END $$;

-- expire ends a message that is past its retention.
CREATE FUNCTION mailbox.expire(q mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF q.drop_expired THEN
    PERFORM mailbox.tell('x', q, m, 'expired');
    PERFORM mailbox.remove(q, m);
  ELSE
    PERFORM mailbox.die(q, m, 'expired', p_at);
  END IF;
END $$;

-- exhaust ends a message that has used up its deliveries, or delays it while the dead letters are full.
CREATE FUNCTION mailbox.exhaust(q mailbox.queue, m mailbox.message, p_delay bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF mailbox.dead_full(q, m, 'max_attempts') THEN
    PERFORM mailbox.put(q, m, m.place, p_at + greatest(p_delay, 60000000), p_at);
  ELSE
    PERFORM mailbox.die(q, m, 'max_attempts', p_at);
  END IF;
END $$;

-- requeue makes a message whose delivery is over wait again, unless it was delivered too often or is too old.
CREATE FUNCTION mailbox.requeue(q mailbox.queue, m mailbox.message, p_place bigint, p_delay bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF mailbox.exhausted(q, m) THEN
    PERFORM mailbox.exhaust(q, m, p_delay, p_at);
  ELSIF mailbox.too_old(q, m, p_at) THEN
    PERFORM mailbox.expire(q, m, p_at);
  ELSE
    PERFORM mailbox.put(q, m, p_place, p_at + p_delay, p_at);
  END IF;
  PERFORM mailbox.expire_by_count(q, m.shard, p_at);
END $$;

-- oldest_ready returns the ready message that could be delivered first, or a row of nulls.
CREATE FUNCTION mailbox.oldest_ready(p_qid int, p_shard int) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message;
BEGIN
  SELECT * INTO m FROM (
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r' ORDER BY a.place LIMIT 1)
    UNION ALL
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('b', 's') ORDER BY a.born, a.arrived LIMIT 1)) z
    ORDER BY z.born, z.arrived LIMIT 1;
  RETURN m;
END $$;

-- expire_by_count expires the oldest ready messages beyond the retention by count.
CREATE FUNCTION mailbox.expire_by_count(q mailbox.queue, p_shard int, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint;
BEGIN
  IF q.ready_count = 0 THEN
    RETURN;
  END IF;
  SELECT (SELECT count(*) FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'r')
    + (SELECT count(*) FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('b', 's')) - q.ready_count INTO v_over;
  WHILE v_over > 0 LOOP
    m := mailbox.oldest_ready(q.qid, p_shard);
    EXIT WHEN m.seq IS NULL OR NOT (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired'));
    PERFORM mailbox.expire(q, m, p_at);
    v_over := v_over - 1;
  END LOOP;
END $$;

-- retain applies retention by age up to a time: the events before it, and those at it if p_including.
CREATE FUNCTION mailbox.retain(q mailbox.queue, p_shard int, p_upto bigint, p_including bool, INOUT p_at bigint) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; d mailbox.message; v_ready bigint; v_dead bigint; v_first bigint;
BEGIN
  WHILE q.ready_age > 0 OR q.dead_age > 0 LOOP
    v_ready := NULL;
    v_dead := NULL;
    IF q.ready_age > 0 THEN
      m := mailbox.oldest_ready(q.qid, p_shard);
      IF m.seq IS NOT NULL AND m.born + q.ready_age <= p_upto AND (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired')) THEN
        v_ready := m.born + q.ready_age;
      END IF;
    END IF;
    IF q.dead_age > 0 THEN
      SELECT * INTO d FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' ORDER BY a.place LIMIT 1;
      v_dead := d.born + q.dead_age;
    END IF;
    v_first := least(v_ready, v_dead);
    EXIT WHEN v_first IS NULL OR v_first > p_upto OR (v_first = p_upto AND NOT p_including);
    IF v_first > p_at THEN
      p_at := v_first;
      PERFORM mailbox.pass_time(q, p_shard);
    END IF;
    IF v_first = v_ready THEN
      PERFORM mailbox.expire(q, m, p_at);
    ELSE
      PERFORM mailbox.tell('r', q, d, d.reason);
      PERFORM mailbox.remove(q, d);
      PERFORM mailbox.expire_by_count(q, p_shard, p_at);
    END IF;
  END LOOP;
END $$;

-- fire ends a lease or a delay at its time.
CREATE FUNCTION mailbox.fire(q mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF m.state = 'f' THEN
    PERFORM mailbox.requeue(q, mailbox.end_delivery(m, 'n'), m.place, 0, p_at);
    RETURN;
  END IF;
  PERFORM mailbox.put(q, m, m.place, m.due, p_at);
  IF mailbox.too_old(q, m, p_at) THEN
    PERFORM mailbox.expire(q, m, p_at);
  END IF;
  PERFORM mailbox.expire_by_count(q, m.shard, p_at);
END $$;

-- advance handles what has fallen due up to now, each at its own time and in the order of those times. p_low is
-- a time up to which the caller knows that nothing is left. It reports false if there is more to do than one
-- call should: the caller commits, and calls again. A row that a settling transaction has locked is passed over:
-- that transaction was in time.
CREATE FUNCTION mailbox.advance(q mailbox.queue, p_shard int, p_now bigint, p_low bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_at bigint := 0; v_fired int; v_budget int := 1000;
BEGIN
  PERFORM mailbox.trim_dead(q, p_shard);
  LOOP
    v_fired := 0;
    FOR m IN SELECT * FROM mailbox.message a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > p_low AND a.due <= p_now
      ORDER BY a.due, a.arrived LIMIT v_budget FOR UPDATE SKIP LOCKED LOOP
      v_at := mailbox.retain(q, p_shard, m.due, false, v_at);
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
  v_at := mailbox.retain(q, p_shard, p_now, true, v_at);
  PERFORM mailbox.pass_time(q, p_shard);
  PERFORM mailbox.expire_by_count(q, p_shard, p_now);
  RETURN true;
END $$;
