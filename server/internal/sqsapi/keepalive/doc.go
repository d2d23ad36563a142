// Package keepalive serves simple HTTP/1.1 requests that follow each other on a
// keep-alive connection, for a fraction of what package http spends on a request.
//
// Package http accepts connections and reads the first request. A handler that
// recognizes a request for it takes the connection over with [Server.Take]; this package
// reads the requests that follow. It accepts only requests whose beginning and end are
// beyond doubt: HTTP/1.1 with a Content-Length, headers in the form that the standard
// recommends, and nothing that asks for more than a response. With any other request
// the connection goes back to package http, from the first byte of that request. So the
// package has no behaviour of its own: it reads each request as package http would.
//
// No goroutine waits for the client to disconnect while a request is handled. Handlers
// that need one start it with [Conn.Watch].
package keepalive
