#!lua
-- Answers if the server takes writes: one that is a replica, out of memory or
-- unable to save refuses a script that may write.
--
-- KEYS: registry
-- ARGV:
-- Result: 1

return 1
