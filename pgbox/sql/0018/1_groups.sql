-- ready_state is the state of a message that is ready again. In queues with groups all messages have one, and none has a priority: a process of the version before
-- fair groups may ask for one all the same.
CREATE OR REPLACE FUNCTION mailbox.ready_state(q mailbox.queue, p_priority int) RETURNS "char" LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN q.is_strict OR q.is_fair THEN 's' WHEN p_priority > 0 THEN 'h' ELSE 'b' END::"char" $$;
