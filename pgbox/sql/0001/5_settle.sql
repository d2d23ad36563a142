-- ack removes leased messages of a queue without strict groups. It takes no lock but those of the rows: the row
-- decides between an ack and the end of its lease. It returns the positions of the receipts that were valid.
CREATE FUNCTION mailbox.ack(p_qid int, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[]) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE t bigint := mailbox.clock();
BEGIN
  PERFORM mailbox.durable();
  RETURN QUERY WITH held AS MATERIALIZED (
      SELECT a.seq, u.n FROM (SELECT * FROM unnest(p_shards, p_seqs, p_nonces, p_ids) WITH ORDINALITY AS v(shard, seq, nonce, id, n) ORDER BY v.seq) u
      CROSS JOIN LATERAL (SELECT b.seq FROM mailbox.message b WHERE b.seq = u.seq AND b.qid = p_qid AND b.shard = u.shard AND b.state = 'f'
        AND b.nonce = u.nonce AND b.id = u.id AND b.due > t FOR UPDATE) a),
    gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    bodies AS (DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT h.seq FROM held h)))
    SELECT min(h.n)::int FROM held h GROUP BY h.seq;
END $$;

-- settle settles deliveries, in order. what: a ack, l ack late, n nack (p_numbers: delays, p_reasons: n it failed, r
-- release, p put back), e extend and g extend late (p_numbers: visibilities), k dead-letter (p_reasons, p_types), u undo a
-- delivery that reached no receiver.
-- codes: s settled, x the receipt has expired, f the dead letters are full; null: the call has to be made again.
CREATE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
  p_numbers bigint[], p_causes bytea[], p_types bytea[], p_reasons text[], p_wide bool,
  OUT codes text, OUT grants bigint[], OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; m mailbox.message; t bigint; v_held bool; v_same bool; v_code text; v_granted bigint;
BEGIN
  IF p_what = 'u' OR (p_what IN ('e', 'g') AND 0 < ALL (p_numbers)) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM mailbox.durable();
  END IF;
  t := mailbox.begin_call(p_qid, p_shards, p_wide, 0);
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
      ELSIF p_what = 'g' AND v_same AND m.state = 'b' AND m.nonce = p_nonces[i] AND mailbox.may_lease(q, m.shard) THEN
        v_code := 's';
        IF p_numbers[i] > 0 THEN
          UPDATE mailbox.message a SET state = 'f', due = t + p_numbers[i], again = true,
            hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_numbers[i]) ELSE 0 END WHERE a.seq = m.seq;
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

-- may_lease reports whether the in-flight limit allows one more lease.
CREATE FUNCTION mailbox.may_lease(q mailbox.queue, p_shard int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  RETURN q.max_in_flight = 0 OR q.max_in_flight > (SELECT count(*) FROM mailbox.message a
    WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.state = 'f');
END $$;

-- settle_held settles a message that is in flight.
CREATE FUNCTION mailbox.settle_held(q mailbox.queue, m mailbox.message, p_what text, p_number bigint, p_type bytea, p_reason text, t bigint,
  OUT code text, OUT granted bigint) LANGUAGE plpgsql AS $$
BEGIN
  code := 's';
  granted := 0;
  CASE p_what
  WHEN 'a', 'l' THEN
    PERFORM mailbox.remove(q, m);
  WHEN 'n', 'r', 'p' THEN
    m := mailbox.end_delivery(m, p_what);
    PERFORM mailbox.requeue(q, m,
      CASE WHEN p_what = 'r' OR q.is_strict OR mailbox.exhausted(q, m) THEN m.place ELSE nextval('mailbox.place') END, p_number, t);
  WHEN 'e', 'g' THEN
    granted := p_number;
    IF m.hold > 0 THEN
      granted := greatest(least(granted, m.hold - t), 0);
    END IF;
    IF granted > 0 THEN
      UPDATE mailbox.message a SET due = t + granted WHERE a.seq = m.seq;
    ELSE
      PERFORM mailbox.requeue(q, mailbox.end_delivery(m, 'n'), m.place, 0, t);
    END IF;
  WHEN 'k' THEN
    IF mailbox.dead_full(q, m, p_reason) THEN
      code := 'f';
    ELSE
      m.error_type := p_type;
      PERFORM mailbox.die(q, m, p_reason, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  WHEN 'u' THEN
    UPDATE mailbox.message a SET deliveries = a.deliveries - 1,
      first_at = CASE WHEN NOT a.started THEN a.first_at END WHERE a.seq = m.seq;
    PERFORM mailbox.put(q, m, m.place, t, t);
  END CASE;
END $$;
