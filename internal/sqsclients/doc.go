// Package sqsclients shows from outside that the daemon is SQS: its tests run mailboxd
// as it is shipped, with signatures and on the disk, and let clients talk to it that
// others wrote: the SDKs of AWS for Node.js, Python and Go, the command line of AWS,
// sqs-consumer and Celery. What the SQS surface promises in numbers is here too: that
// nothing is lost when the daemon is killed, the order and pace of large FIFO queues,
// and what idle queues and idle polls cost.
//
// tools/sqsclients.sh, which is part of make servers, installs the clients. Every test
// prints its figures.
package sqsclients
