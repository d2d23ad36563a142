-- usage counts the messages of a queue by shard.
CREATE FUNCTION mailbox.usage(p_qid int, p_ages bool, p_wide bool)
RETURNS TABLE (shard int, done bool, ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint, keys bigint,
  oldest_ready bigint, oldest_dead bigint, paused bool, version bigint, woken text, endings text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); t bigint; v_keys bigint; m mailbox.message; v_age bigint; v_dead bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0);
  q := mailbox.rules(p_qid, 0);
  FOR n IN 0 .. q.shards - 1 LOOP
    v_keys := NULL;
    v_age := 0;
    v_dead := 0;
    IF p_ages THEN
      SELECT count(*) INTO v_keys FROM mailbox.dedup d WHERE d.qid = p_qid AND d.ends > t AND n = 0;
      IF q.ready_age > 0 THEN
        m := mailbox.oldest_ready(p_qid, n);
        v_age := coalesce(greatest(t - m.born, 0), 0);
      END IF;
      SELECT greatest(t - min(a.born), 0) INTO v_dead FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'x';
    END IF;
    RETURN QUERY SELECT n, t IS NOT NULL,
      (SELECT count(*) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'r')
        + (SELECT count(*) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state IN ('b', 's')),
      w.delayed, w.flying, (SELECT count(*) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'x'),
      CASE WHEN p_ages THEN w.bytes
        + (SELECT coalesce(sum(a.size), 0) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'r')::bigint
        + (SELECT coalesce(sum(a.size), 0) FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state IN ('b', 's'))::bigint END,
      v_keys, v_age, coalesce(v_dead, 0), q.paused, q.version, current_setting('mailboxmq.woken', true), mailbox.endings()
      FROM (SELECT count(*) FILTER (WHERE a.state <> 'f') AS delayed, count(*) FILTER (WHERE a.state = 'f') AS flying, coalesce(sum(a.size), 0)::bigint AS bytes
        FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state IN ('d', 'w', 'f')) w;
  END LOOP;
END $$;

-- waiting_of returns the messages of a queue that are not dead, and dead_of those that are.
CREATE FUNCTION mailbox.waiting_of(p_qid int) RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'r'
    UNION ALL SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('b', 's')
    UNION ALL SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state IN ('d', 'w', 'f')) $$;
CREATE FUNCTION mailbox.dead_of(p_qid int) RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT a.seq FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x') $$;

-- delete_all deletes messages with their bodies, and counts them.
CREATE FUNCTION mailbox.delete_all(p_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_count bigint;
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = ANY (p_seqs);
  GET DIAGNOSTICS v_count = ROW_COUNT;
  DELETE FROM mailbox.body b WHERE b.seq = ANY (p_seqs);
  RETURN v_count;
END $$;

-- purge removes the messages of a queue that are not dead, or its dead letters, and counts them.
CREATE FUNCTION mailbox.purge(p_qid int, p_dead bool, p_wide bool, OUT removed bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); v_shards int[] := ARRAY(SELECT generate_series(0, q.shards - 1));
BEGIN
  PERFORM mailbox.durable();
  IF mailbox.begin_call(p_qid, v_shards, p_wide, 0) IS NOT NULL THEN
    removed := mailbox.delete_all(CASE WHEN p_dead THEN mailbox.dead_of(p_qid) ELSE mailbox.waiting_of(p_qid) END);
    IF NOT p_dead THEN
      DELETE FROM mailbox.strict_group g WHERE g.qid = p_qid;
    ELSE
      PERFORM mailbox.advance(mailbox.rules(p_qid, s), s, mailbox.clock(), 0) FROM unnest(v_shards) s; -- retention may have waited for room
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- redrive makes dead letters ready again at the tail, oldest death first: those with these ids, or all that died
-- up to the place p_until. p_until is null in the first call. stopped is set if the queue is full.
CREATE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint,
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
      CONTINUE WHEN NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state = 'x' AND a.place = m.place); -- retention has just removed it
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

-- discard removes dead letters, one after the other.
CREATE FUNCTION mailbox.discard(p_qid int, p_ids uuid[], p_wide bool, OUT removed int, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); m mailbox.message; v_id uuid;
BEGIN
  PERFORM mailbox.durable();
  IF mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0) IS NOT NULL THEN
    removed := 0;
    FOREACH v_id IN ARRAY p_ids LOOP
      FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.id = v_id AND a.state = 'x' LOOP
        PERFORM mailbox.remove(q, m);
        PERFORM mailbox.advance(mailbox.rules(p_qid, m.shard), m.shard, mailbox.clock(), 0); -- retention may have waited for room
        removed := removed + 1;
      END LOOP;
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- move makes ready messages of a queue ready at the tail of others: those after the place p_after and up to
-- p_until, which is null in the first call, in order. p_to is the target, or null for the queue that each message
-- died in; p_names are the queues that it may be. failed is full if a target is full, and gone if p_to is not
-- there. moved is null if the call has to be made again.
CREATE FUNCTION mailbox.move(p_qid int, p_to text, p_names text[], p_limit int, INOUT p_after bigint, INOUT p_until bigint,
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
          ORDER BY a.place LIMIT 1000)) z ORDER BY z.place LIMIT 1000 LOOP
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

-- lock_queue locks all shards of a queue, for changes of its configuration, and its deletion.
CREATE FUNCTION mailbox.lock_queue(p_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue;
BEGIN
  SELECT * INTO q FROM mailbox.queue a WHERE a.name = p_name;
  IF FOUND THEN
    PERFORM mailbox.lock(0, q.qid, ARRAY(SELECT generate_series(0, q.shards - 1)));
    PERFORM mailbox.lock(1, q.qid, ARRAY(SELECT generate_series(0, q.shards - 1)));
  END IF;
  RETURN q.qid;
END $$;

-- pause stops or resumes deliveries of a queue, and reports whether there is one.
CREATE FUNCTION mailbox.pause(p_qid int, p_paused bool) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0);
BEGIN
  PERFORM mailbox.durable();
  PERFORM mailbox.lock(0, p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)));
  UPDATE mailbox.queue a SET paused = p_paused WHERE a.qid = p_qid AND a.paused <> p_paused;
  RETURN true;
END $$;

-- delete_queue deletes a queue with everything in it.
CREATE FUNCTION mailbox.delete_queue(p_name text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_qid int;
BEGIN
  PERFORM mailbox.durable();
  v_qid := mailbox.lock_queue(p_name);
  DELETE FROM mailbox.queue a WHERE a.qid = v_qid;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM mailbox.delete_all(mailbox.waiting_of(v_qid) || mailbox.dead_of(v_qid));
  DELETE FROM mailbox.strict_group g WHERE g.qid = v_qid;
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  RETURN true;
END $$;

-- configure creates a queue (p_version is 0) or changes its configuration, if that is still of this version. It
-- reports whether it did. p_rules are the numbers of the settings, in the order of the columns.
CREATE FUNCTION mailbox.configure(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.durable();
  IF p_version = 0 THEN
    INSERT INTO mailbox.queue (name, incarnation, config, is_strict, drop_expired, dead_to, shards, max_deliveries, max_messages, max_bytes,
      max_in_flight, max_dead, max_hold, dedup_window, dedup_max, ready_age, ready_count, dead_age, dead_count)
      VALUES (p_name, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules[1], p_rules[2], p_rules[3], p_rules[4], p_rules[5], p_rules[6],
        p_rules[7], p_rules[8], p_rules[9], p_rules[10], p_rules[11], p_rules[12], p_rules[13])
      ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  PERFORM mailbox.lock_queue(p_name);
  UPDATE mailbox.queue a SET version = a.version + 1, config = p_config, drop_expired = p_drop, dead_to = p_dead_to, max_deliveries = p_rules[2],
    max_messages = p_rules[3], max_bytes = p_rules[4], max_in_flight = p_rules[5], max_dead = p_rules[6], max_hold = p_rules[7],
    dedup_window = p_rules[8], dedup_max = p_rules[9], ready_age = p_rules[10], ready_count = p_rules[11], dead_age = p_rules[12],
    dead_count = p_rules[13]
    WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  RETURN FOUND;
END $$;
