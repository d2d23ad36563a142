-- choose picks up to p_max ready messages, in order, with at most p_bytes of bodies, of which the first may be
-- larger. Messages that were delivered too often end instead. why is 1 if only the in-flight limit was in the way.
CREATE FUNCTION mailbox.choose(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
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
CREATE FUNCTION mailbox.choose_strict(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
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
      IF mailbox.exhausted(q, m) THEN
        PERFORM mailbox.exhaust(q, m, 0, t);
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
CREATE FUNCTION mailbox.next_due(q mailbox.queue, p_shard int, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_due bigint; v_dead bigint; m mailbox.message;
BEGIN
  SELECT a.due INTO v_due FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > t
    ORDER BY a.due LIMIT 1;
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

-- upstream returns when the queues whose dead letters reach this one change next, and itself.
CREATE FUNCTION mailbox.upstream(p_qid int) RETURNS TABLE (qid int, shard int, due bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE t bigint := mailbox.clock();
BEGIN
  RETURN QUERY WITH RECURSIVE sources AS (
    SELECT a.qid, a.name, a.shards FROM mailbox.queue a WHERE a.qid = p_qid
    UNION SELECT u.qid, u.name, u.shards FROM sources s JOIN mailbox.queue u ON u.dead_to = s.name AND s.name <> '')
  SELECT s.qid, n, mailbox.next_due(mailbox.rules(s.qid, n), n, 0) FROM sources s CROSS JOIN LATERAL generate_series(0, s.shards - 1) n;
END $$;

-- new_nonce names a delivery by a random number and, in the lower half, a hash over it, the message and its place:
-- so a nonce alone proves which delivery it was issued for, and late acks need no list of them.
CREATE FUNCTION mailbox.new_nonce(q mailbox.queue, p_seq bigint, p_place bigint, p_random bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT ((p_random & 2147483647) << 32)
    | (hashint8extended(hashint8extended(p_seq, hashtextextended(q.incarnation, 0)) # p_place, p_random & 2147483647) & 4294967295) $$;

-- receive leases ready messages to requests, in order. The first row is about the call: request is -1, or -2 if
-- the call has to be made again; seq is the place up to which no sent message is left; nonce is the time;
-- if p_next, sent_at is when the shard or a queue whose dead letters come here changes next, and deliveries is the
-- number of such queues; first_at is the version of the queue; extra has a character
-- for each request, 1 if only the in-flight limit kept it from getting a message; error has the endings, and
-- body the queues that messages went to.
CREATE FUNCTION mailbox.receive(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool)
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue; t bigint; v_seqs bigint[]; v_groups bytea[]; v_why int; v_ceiling bigint; v_whys text := ''; v_seed bigint := p_seed;
  v_low bigint := p_low; v_zero bool := false; v_empty bool := false; v_name bytea; v_next bigint; v_sources int := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); -- a lease that is lost is a redelivery
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, p_low_due);
  IF t IS NULL THEN
    RETURN QUERY SELECT -2, v_low, 0::bigint, 0, 0::bigint, 0::bigint, NULL::uuid, NULL::bytea, NULL::bytea,
      convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false;
    RETURN;
  END IF;
  q := mailbox.rules(p_qid, p_shard);
  v_ceiling := 1000000000;
  IF q.max_in_flight > 0 THEN
    SELECT q.max_in_flight - count(*) INTO v_ceiling FROM mailbox.message a
      WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.state = 'f';
  END IF;
  FOR i IN 1 .. cardinality(p_max) LOOP
    v_seqs := '{}';
    v_why := 0;
    IF q.paused OR v_empty THEN
      NULL;
    ELSIF q.is_strict THEN
      SELECT c.seqs, c.groups, c.why INTO v_seqs, v_groups, v_why FROM mailbox.choose_strict(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t) c;
    ELSE
      SELECT c.p_low, c.seqs, c.why INTO v_low, v_seqs, v_why FROM mailbox.choose(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low) c;
    END IF;
    v_whys := v_whys || v_why;
    v_empty := v_seqs = '{}' AND v_why = 0;
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
        l.from_reason, l.from_queue, l.from_deliveries, l.from_error, l.releases > 0
      FROM leased l CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = l.seq OFFSET 0) b ORDER BY l.n;
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
  IF p_next THEN
    v_next := mailbox.next_due(q, p_shard, t);
    SELECT count(*), least(v_next, min(u.due)) INTO v_sources, v_next FROM mailbox.upstream(p_qid) u WHERE u.qid <> p_qid;
  END IF;
  RETURN QUERY SELECT -1, v_low, t, v_sources, q.version, v_next, NULL::uuid, NULL::bytea, convert_to(v_whys, 'UTF8'),
    convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false;
END $$;
