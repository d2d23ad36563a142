// Package sqsclients tests the SQS surface of the daemon from outside: its tests run
// mailboxd as it is shipped, with signatures and on disk, with other people's clients: the
// AWS SDKs for Node.js, Python and Go, the AWS CLI, sqs-consumer and Celery. It also
// measures what the SQS surface promises: that nothing is lost when the daemon is killed,
// the order and speed of large FIFO queues, and the cost of idle queues and idle polls.
//
// make setup installs the clients; without them tests skip, or fail under make. Every test
// prints its figures.
package sqsclients
