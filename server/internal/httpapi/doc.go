// Package httpapi is the daemon's surface in HTTP and JSON. It reads requests
// strictly, passes them to the broker, and writes the answers; api/openapi.yaml
// describes both.
//
// Most requests are POST with a JSON object that names the queue, because the name of a
// queue may have any character. The paths for curl, and health checks, are in page.go
// and health.go. The token is in the Authorization header, "Bearer" and the text form
// of package capability.
//
// Lists are streamed as lines of JSON. A list that could not be finished ends with a
// line {"error":…}.
package httpapi
