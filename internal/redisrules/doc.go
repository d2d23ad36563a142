// Package redisrules shows that the rules of workers and of dead letters hold on Redis
// too.
//
// Most cases of these rules are in the packages that implement them, and run in virtual
// time on backends in this process. A server has a clock of its own, so the cases here run
// in real time: at least one for each rule LOOP and DLQ of docs/semantics.md, which a test
// checks.
package redisrules
