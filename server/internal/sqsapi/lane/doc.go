// Package lane serves the requests of clients that send one after the other on a
// connection, all of them of the plainest form, for a fraction of what package http
// spends on a request.
//
// Package http accepts connections and reads what comes first. A handler that sees a
// request of its own kind takes the connection over with [Lanes.Take]; the requests
// that follow are read here. What is taken is only what leaves no doubt about where
// a request begins and ends: HTTP/1.1 in one piece of known length, headers in the
// form that the standard recommends, and nothing that asks for more than an answer.
// At anything else the connection goes back to package http, from the first byte of
// the request that was not taken. So the lane has no behaviour of its own: each
// request that it reads is one that package http would have read as the same.
//
// There is no goroutine that waits for a client to leave while a request is worked
// on. Requests that wait ask for one with [Conn.Watch].
package lane
