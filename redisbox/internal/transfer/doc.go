// Package transfer brings messages of redisbox to other queues: dead letters to the queue that
// takes them (forward.go), and ready messages by Move (move.go, transfer.go). Source and target
// may be in different slots of a cluster, so no script changes both. A transfer has steps that
// can be repeated, and a Forwarder resumes what another process has left unfinished.
package transfer
