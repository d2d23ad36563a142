package oap

// The operations of the Mailbox protocol: the codes of requests and events.
const (
	// OpStart sends the token and begins or resumes a producer session.
	OpStart uint16 = 0x01
	// OpOpen and OpClose begin and end the use of a queue under a number.
	OpOpen  uint16 = 0x02
	OpClose uint16 = 0x03
	OpPing  uint16 = 0x04
	// OpOpenIdentified is OpOpen of one queue among those that have the name one after the
	// other. Earlier servers answer StatusUnsupported.
	OpOpenIdentified uint16 = 0x05
	// OpJoin says that the client joins the payloads of what comes in several frames.
	// Without it a server sends no element in parts. Earlier servers answer
	// StatusUnsupported.
	OpJoin uint16 = 0x06
	// OpKnow tells the traits that the client knows. Without it a server tells of
	// PlainTraits only. Earlier servers answer StatusUnsupported.
	OpKnow uint16 = 0x07
	// OpName tells what the client calls itself, for lists of workers. Earlier servers answer
	// StatusUnsupported.
	OpName uint16 = 0x08

	OpSend      uint16 = 0x10
	OpReceive   uint16 = 0x11
	OpSubscribe uint16 = 0x12
	OpAck       uint16 = 0x13
	OpNack      uint16 = 0x14
	OpExtend    uint16 = 0x15
	OpPurge     uint16 = 0x16
	OpStats     uint16 = 0x17
	OpPeek      uint16 = 0x18
	// OpExtendGranted is OpExtend, and its answer says what was granted. Earlier
	// servers answer StatusUnsupported.
	OpExtendGranted uint16 = 0x19
	// OpPause and OpResume are for queues whose traits have the ability, and so is
	// OpStatsPaused: OpStats that also says whether the queue is paused. Earlier servers
	// answer StatusUnsupported.
	OpPause       uint16 = 0x1a
	OpResume      uint16 = 0x1b
	OpStatsPaused uint16 = 0x1c
	// OpRelease is OpNack with a mode for each delivery, for queues whose traits have the
	// ability. Earlier servers answer StatusUnsupported.
	OpRelease uint16 = 0x1d

	// OpEdit is for queues whose traits have the ability. Earlier servers answer
	// StatusUnsupported.
	OpEdit uint16 = 0x1e
	// OpThrottle is for queues whose traits have GroupLimits. Earlier servers answer
	// StatusUnsupported.
	OpThrottle uint16 = 0x1f

	OpDeadLetter  uint16 = 0x20
	OpDeadLetters uint16 = 0x21
	OpRedrive     uint16 = 0x22
	OpDiscard     uint16 = 0x23
	OpPurgeDead   uint16 = 0x24
	// OpFire and OpSchedules are for queues whose traits have the ability. Earlier servers
	// answer StatusUnsupported.
	OpFire      uint16 = 0x25
	OpSchedules uint16 = 0x26
	// OpExtendProgress is OpExtendGranted with the reports of the receiver. Earlier servers
	// answer StatusUnsupported.
	OpExtendProgress uint16 = 0x27

	OpConfigure uint16 = 0x30
	OpConfig    uint16 = 0x31
	OpQueues    uint16 = 0x32
	OpDelete    uint16 = 0x33
	// OpWorkers lists the receivers of a queue, or of all. Earlier servers answer
	// StatusUnsupported.
	OpWorkers uint16 = 0x34

	// The operations on reply slots. OpWaitSlot that does not wait reads a slot. Earlier servers
	// answer StatusUnsupported.
	OpCreateSlot   uint16 = 0x40
	OpResolveSlot  uint16 = 0x41
	OpWaitSlot     uint16 = 0x42
	OpCancelSlot   uint16 = 0x43
	OpConsumeSlot  uint16 = 0x44
	OpDeleteSlot   uint16 = 0x45
	OpExpiredSlots uint16 = 0x46
	OpSweepSlots   uint16 = 0x47
	// OpSendAsking is OpCreateSlot and OpSend of one message.
	OpSendAsking uint16 = 0x48
	// OpAnswer is OpResolveSlot and OpAck of one delivery. Earlier servers answer
	// StatusUnsupported.
	OpAnswer uint16 = 0x49
	// OpSlots lists the slots. Earlier servers answer StatusUnsupported.
	OpSlots uint16 = 0x4a

	// EventCancel ends the request with the same correlation id,
	// and EventCredit lets its stream send more. EventGoodbye, with END, announces
	// that there will be no more requests.
	EventCancel  uint16 = 0x80
	EventCredit  uint16 = 0x81
	EventGoodbye uint16 = 0x82
	// EventEnvelopes, right after START, requests deliveries with their seals.
	EventEnvelopes uint16 = 0x83
	// EventDrain announces that the server accepts no more requests here, and
	// EventTraits that a queue was reconfigured. EventDeliver carries the
	// messages of a subscription. EventLeave asks a client without running
	// requests to close the connection, because the server drains.
	EventDrain   uint16 = 0x90
	EventTraits  uint16 = 0x91
	EventDeliver uint16 = 0x92
	EventLeave   uint16 = 0x93
	// EventOpened is EventTraits for a queue that was opened with OpOpenIdentified. It also
	// says which queue that is, when one that did not exist was found.
	EventOpened uint16 = 0x94
	// EventDeliverPart is EventDeliver whose last message goes on in the next event of
	// the subscription. It comes after OpJoin only.
	EventDeliverPart uint16 = 0x95
)

// The statuses, which are the codes of responses.
const (
	// StatusOK: the operation was done, and the payload is its answer. In a
	// batch, single elements may have failed.
	StatusOK uint16 = 200
	// StatusMore: as StatusOK, and another response to the same request
	// follows.
	StatusMore uint16 = 206
	// StatusPart: as StatusMore, and the last element of the payload goes on in the next
	// response. It comes after OpJoin only.
	StatusPart uint16 = 207

	// StatusElsewhere: the operation was not done, because the server accepts no more
	// requests on this connection. Use another connection.
	StatusElsewhere uint16 = 307

	StatusInvalid         uint16 = 400
	StatusUnauthenticated uint16 = 401
	StatusForbidden       uint16 = 403
	StatusNotFound        uint16 = 404
	StatusConflict        uint16 = 409
	StatusGone            uint16 = 410
	StatusTooLarge        uint16 = 413
	StatusIntegrity       uint16 = 422
	StatusFull            uint16 = 429
	StatusCancelled       uint16 = 499
	StatusUnsupported     uint16 = 501
	StatusUnavailable     uint16 = 503
)
