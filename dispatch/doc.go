// Package dispatch delivers events to subscribers in the same process, mainly for
// telemetry.
//
// Events are values, and subscribers are functions of their type:
//
//	unsubscribe := dispatch.Subscribe(dispatcher, func(ctx context.Context, event dispatch.DeadLettered) error {
//		return page(ctx, event.Queue, event.Reason)
//	})
//
// [Publish] calls them one after the other, in the order in which they
// subscribed, before it returns. If a subscriber fails or panics, the others are
// called all the same, and the code that did the work does not notice.
//
// [Hooks] publishes what mailboxes do: [Sent], [Received], [Settled],
// [DeadLettered] and [Replied].
//
// # Dispatcher or mailbox
//
// A dispatcher is not a mailbox:
//
//	                 dispatcher               mailbox
//	pattern          broadcast                point to point
//	delivery         to all subscribers       to one receiver
//	acknowledgement  none                     required
//	durability       none                     that of the backend
//	processes        this one                 any
//	order            that of the calls        that of the backend
//	for              events, telemetry        requests, work
//
// Events are not kept for later subscribers and not retried. Work that must not
// get lost belongs in a mailbox.
package dispatch
