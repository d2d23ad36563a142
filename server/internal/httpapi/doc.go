// Package httpapi is the daemon's surface in HTTP and JSON. It reads requests
// strictly, hands them to the broker, and writes the answers; api/openapi.yaml
// describes both sides.
//
// All requests are POST with a JSON object, but for those that check health.
// Queues stand in the body and never in the path, because a queue may have any
// character. The token is in the Authorization header, "Bearer" and the text form
// of package capability.
//
// Lists are streamed as lines of JSON. A line {"error":…} is the last one of a
// list that could not be finished.
package httpapi
