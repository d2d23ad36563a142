-- settle locks its messages in the order in which ack does, which takes no lock of the shard: in the order of its own elements, each could wait for the other.
CREATE OR REPLACE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
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
    IF cardinality(p_seqs) > 1 THEN
      PERFORM 1 FROM (SELECT s FROM unnest(p_seqs) s ORDER BY s) u CROSS JOIN LATERAL (SELECT FROM mailbox.message b WHERE b.seq = u.s AND b.qid = p_qid FOR UPDATE) a;
    END IF;
    FOR i IN 1 .. cardinality(p_seqs) LOOP
      IF q.qid IS NULL OR q.shards > 1 THEN
        q := mailbox.rules(p_qid, p_shards[i]);
      END IF;
      SELECT * INTO m FROM mailbox.message a WHERE a.seq = p_seqs[i] AND a.qid = p_qid AND a.shard = p_shards[i] AND a.id = p_ids[i] FOR UPDATE;
      v_held := FOUND AND m.state = 'f' AND m.nonce = p_nonces[i] AND m.due > t;
      v_same := FOUND AND m.state <> 'x' AND m.replaced IS NULL AND m.deliveries + m.releases > 0 AND p_nonces[i] = mailbox.new_nonce(q, m.seq, m.place, p_nonces[i] >> 32);
      v_code := 'x';
      v_granted := 0;
      IF v_held THEN
        m.error := coalesce(nullif(p_causes[i], ''), m.error);
        SELECT s.code, s.granted INTO v_code, v_granted FROM mailbox.settle_held(q, m, CASE p_what WHEN 'n' THEN p_reasons[i] ELSE p_what END,
          p_numbers[i], p_types[i], p_reasons[i], t) s;
      ELSIF p_what = 'l' AND v_same THEN
        PERFORM mailbox.remove(q, m);
        v_code := 's';
      ELSIF p_what = 'g' AND v_same AND (m.state IN ('b', 'h') OR (m.state = 's' AND q.is_fair)) AND m.nonce = p_nonces[i] AND coalesce(m.ends > t, true)
        AND mailbox.may_lease(q, m.shard) AND mailbox.may_take(q, m) THEN
        v_code := 's';
        IF p_numbers[i] > 0 THEN
          UPDATE mailbox.message a SET state = 'f', due = t + p_numbers[i], again = true,
            hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_numbers[i]) ELSE 0 END WHERE a.seq = m.seq;
          PERFORM mailbox.moved(q, m.shard, m.state, 'f', m.size);
          IF m.grp IS NOT NULL THEN
            PERFORM mailbox.regroup(q, m.shard, m.grp, 1);
          END IF;
        END IF;
      ELSIF p_what = 'u' AND v_same AND m.state IN ('b', 's', 'h') AND m.nonce = p_nonces[i] THEN -- its lease has ended, and no receiver had it
        PERFORM mailbox.undo(q, m, t);
        v_code := 's';
      END IF;
      codes := codes || v_code;
      grants[i] := v_granted;
    END LOOP;
    version := q.version;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace AND p.proname = 'settle' LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
