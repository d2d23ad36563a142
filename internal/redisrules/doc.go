// Package redisrules shows that the rules of workers and of dead letters hold on
// Redis too.
//
// Most cases of these rules are with the packages that keep them, and are played in
// virtual time on backends that live in this process. A server has a clock of its
// own, so here are those cases that can be told in real time: at least one for each
// rule LOOP and DLQ of docs/semantics.md, which a test checks.
package redisrules
