-- durable makes the commit of the present transaction wait for the disk, whatever the session says.
CREATE FUNCTION mailbox.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- begin_call locks shards and advances them to now. It returns null if the call has to be made again.
CREATE FUNCTION mailbox.begin_call(p_qid int, p_shards int[], p_wide bool, p_low bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_shard int; v_done bool := true; t bigint;
BEGIN
  IF p_wide THEN
    PERFORM mailbox.lock_wide(ARRAY(SELECT a.name FROM mailbox.queue a WHERE a.qid = p_qid));
  ELSE
    PERFORM mailbox.lock(0, p_qid, p_shards);
  END IF;
  t := mailbox.clock();
  FOR v_shard IN SELECT DISTINCT s FROM unnest(p_shards) s ORDER BY s LOOP
    v_done := mailbox.advance(mailbox.rules(p_qid, v_shard), v_shard, t, p_low) AND v_done;
  END LOOP;
  RETURN CASE WHEN v_done THEN t END;
END $$;

-- due_at is when a message is due that is sent at t: after a delay, or, if that is below 0, at the time -p_delay.
CREATE FUNCTION mailbox.due_at(t bigint, p_delay bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_delay < 0 THEN greatest(-p_delay, t) ELSE t + p_delay END $$;

-- check_key returns what is known about a dedup key: '' if it is free, d for the same message, c for another one.
CREATE FUNCTION mailbox.check_key(p_qid int, p_key bytea, p_digest bytea, p_now bigint, OUT code text, OUT id uuid) LANGUAGE plpgsql AS $$
DECLARE k mailbox.dedup;
BEGIN
  SELECT * INTO k FROM mailbox.dedup a WHERE a.qid = p_qid AND a.key = p_key;
  code := '';
  IF FOUND AND k.ends > p_now THEN
    code := CASE WHEN k.digest = p_digest THEN 'd' ELSE 'c' END;
    id := k.id;
  END IF;
END $$;

-- send adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; f the queue is full; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count.
CREATE FUNCTION mailbox.send(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ruled := q.is_strict OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0;
  IF v_ruled THEN
    t := mailbox.begin_call(p_qid, p_shards, p_wide, 0);
    IF t IS NULL THEN
      woken := current_setting('mailboxmq.woken', true);
      endings := mailbox.endings();
      RETURN;
    END IF;
  ELSIF 0 <> ANY (p_delays) THEN
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
  codes := '';
  IF v_ruled OR p_keys IS NOT NULL OR p_past IS NOT NULL THEN
    SELECT s.codes, s.ids, s.waits, s.keys INTO codes, ids, waits, keys
      FROM mailbox.send_each(q, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, t) s;
  ELSE
    WITH n AS MATERIALIZED (SELECT nextval('mailbox.place') AS seq, u.* FROM unnest(p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays) AS u(shard, id, body, grp, extra, delay)),
    b AS (INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT n.seq, t, n.grp, n.extra, n.body FROM n)
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id)
      SELECT n.seq, p_qid, n.shard, CASE WHEN d.due > t THEN 'd' ELSE 'r' END::"char", n.seq, n.seq, d.due, d.due, length(n.body), n.id
      FROM n CROSS JOIN LATERAL (SELECT mailbox.due_at(t, n.delay) AS due) d;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- send_each adds messages one by one, for queues with rules and messages with dedup keys.
CREATE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint) LANGUAGE plpgsql AS $$
DECLARE r mailbox.queue; k record; v_code text; v_seq bigint; v_grp bytea; v_shard int; v_due bigint;
  u record; v_messages bigint[]; v_bytes bigint[]; n int;
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
      IF p_keys[i] IS NOT NULL THEN
        INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, p_keys[i], p_digests[i], p_ids[i], t + q.dedup_window)
          ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
        keys := keys + 1;
      END IF;
      INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, t, p_groups[i], p_extras[i], p_bodies[i]);
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i]);
      IF q.is_strict THEN
        PERFORM mailbox.regroup(q.qid, v_shard, v_grp);
      END IF;
      v_messages[n] := v_messages[n] + 1;
      v_bytes[n] := v_bytes[n] + length(p_bodies[i]);
      IF r.ready_count > 0 THEN
        PERFORM mailbox.expire_by_count(r, v_shard, t);
        v_messages[n] := NULL; -- some may be gone
      END IF;
    END IF;
    codes := codes || v_code;
  END LOOP;
  IF codes ~ '^s*$' THEN
    codes := '';
  END IF;
END $$;
