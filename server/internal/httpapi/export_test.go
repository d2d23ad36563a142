package httpapi

import "reflect"

// RequestTypes are the types of request bodies, by path.
var RequestTypes = map[string]reflect.Type{
	"/v1/send":             reflect.TypeFor[sendRequest](),
	"/v1/send/batch":       reflect.TypeFor[sendBatchRequest](),
	"/v1/recv":             reflect.TypeFor[receiveRequest](),
	"/v1/recv/cancel":      reflect.TypeFor[cancelRequest](),
	"/v1/recv/stream":      reflect.TypeFor[receiveRequest](),
	"/v1/ack/{msg_id}":     reflect.TypeFor[ackOneRequest](),
	"/v1/nack/{msg_id}":    reflect.TypeFor[nackOneRequest](),
	"/v1/extend/{msg_id}":  reflect.TypeFor[extendOneRequest](),
	"/v1/bury/{msg_id}":    reflect.TypeFor[deadLetterOneRequest](),
	"/v1/ack":              reflect.TypeFor[ackBatchRequest](),
	"/v1/nack":             reflect.TypeFor[nackBatchRequest](),
	"/v1/extend":           reflect.TypeFor[extendBatchRequest](),
	"/v1/bury":             reflect.TypeFor[deadLetterBatchRequest](),
	"/v1/dlq/list":         reflect.TypeFor[deadLettersRequest](),
	"/v1/dlq/causes":       reflect.TypeFor[causesRequest](),
	"/v1/dlq/reprocess":    reflect.TypeFor[redriveRequest](),
	"/v1/dlq/discard":      reflect.TypeFor[discardRequest](),
	"/v1/dlq/purge":        reflect.TypeFor[queueRequest](),
	"/v1/jobs/start":       reflect.TypeFor[jobBody](),
	"/v1/jobs/list":        reflect.TypeFor[queueRequest](),
	"/v1/jobs/get":         reflect.TypeFor[jobIDRequest](),
	"/v1/jobs/stop":        reflect.TypeFor[jobIDRequest](),
	"/v1/peek":             reflect.TypeFor[peekRequest](),
	"/v1/life":             reflect.TypeFor[lifeRequest](),
	"/v1/stats":            reflect.TypeFor[queueRequest](),
	"/v1/history":          reflect.TypeFor[historyRequest](),
	"/v1/purge":            reflect.TypeFor[queueRequest](),
	"/v1/pause":            reflect.TypeFor[queueRequest](),
	"/v1/throttle":         reflect.TypeFor[throttleRequest](),
	"/v1/resume":           reflect.TypeFor[queueRequest](),
	"/v1/edit":             reflect.TypeFor[editRequest](),
	"/v1/schedules/list":   reflect.TypeFor[queueRequest](),
	"/v1/schedules/put":    reflect.TypeFor[putScheduleRequest](),
	"/v1/schedules/get":    reflect.TypeFor[scheduleRequest](),
	"/v1/schedules/pause":  reflect.TypeFor[scheduleRequest](),
	"/v1/schedules/resume": reflect.TypeFor[scheduleRequest](),
	"/v1/schedules/run":    reflect.TypeFor[scheduleRequest](),
	"/v1/schedules/delete": reflect.TypeFor[scheduleRequest](),
	"/v1/replies/create":   reflect.TypeFor[createSlotRequest](),
	"/v1/replies/resolve":  reflect.TypeFor[resolveSlotRequest](),
	"/v1/replies/wait":     reflect.TypeFor[waitSlotRequest](),
	"/v1/replies/get":      reflect.TypeFor[slotRequest](),
	"/v1/replies/consume":  reflect.TypeFor[slotRequest](),
	"/v1/replies/cancel":   reflect.TypeFor[slotRequest](),
	"/v1/replies/delete":   reflect.TypeFor[slotRequest](),
	"/v1/replies/list":     reflect.TypeFor[struct{}](),
	"/v1/replies/expired":  reflect.TypeFor[slotsRequest](),
	"/v1/replies/sweep":    reflect.TypeFor[slotsRequest](),
	"/v1/traits":           reflect.TypeFor[queueRequest](),
	"/v1/queues/list":      reflect.TypeFor[struct{}](),
	"/v1/queues/configure": reflect.TypeFor[configureRequest](),
	"/v1/queues/get":       reflect.TypeFor[queueRequest](),
	"/v1/queues/delete":    reflect.TypeFor[queueRequest](),
	"/v1/ping":             reflect.TypeFor[struct{}](),
	"/v1/caps/mint":        reflect.TypeFor[mintRequest](),
	"/v1/caps/revoke":      reflect.TypeFor[revokeRequest](),
	"/v1/audit":            reflect.TypeFor[auditRequest](),
	"/v1/keys/list":        reflect.TypeFor[struct{}](),
	"/v1/keys/rotate":      reflect.TypeFor[struct{}](),
	"/v1/keys/retire":      reflect.TypeFor[keyRequest](),
	"/v1/backup":           reflect.TypeFor[backupRequest](),
}

// QueryTypes are the types of queries, by method and path.
var QueryTypes = map[string]reflect.Type{
	"POST /v1/queues/{topic}/messages": reflect.TypeFor[sendBodyQuery](),
	"GET /v1/queues/{topic}/messages":  reflect.TypeFor[peekQuery](),
	"GET /v1/queues/{topic}/stats":     reflect.TypeFor[struct{}](),
	"GET /v1/watch":                    reflect.TypeFor[watchQuery](),
	"GET /v1/workers":                  reflect.TypeFor[workersQuery](),
}

// DecodeStrictly is for the fuzzer.
var DecodeStrictly = decodeStrictly

// DurationType is how durations are read.
var DurationType = durationType

// NewRequest returns a pointer to an empty request.
func NewRequest(path string) any { return reflect.New(RequestTypes[path]).Interface() }
