// Package oapapi is the surface of mailboxd that speaks OAP/1 frames: the fast
// road, on which the Go client comes.
//
// A connection shows its capability once, with START, and is then a pipe of requests. One
// goroutine reads. It takes every frame that has arrived, and starts as few calls of the broker
// as possible: all sends to one queue are one call, and so are all acks. Completions write the
// answers, on whatever goroutine ends a call, and each connection is flushed once a round: under
// load a system call, a lock and a wake-up are shared by many messages, and a single request
// waits for no other. See package completion.
//
// Requests that are on their way at the same time may be done in any order,
// except that sends to one queue stay in order.
//
// What a client can cost is bounded: frames before memory is taken for them,
// unanswered requests, queues and connections by number, and the time in which a
// connection must show a capability, complete a frame it began, and read its
// answers. Producer sessions make repeats harmless, see sessions.
package oapapi
