// Package dispatch tells events to everybody in the process who wants to know:
// telemetry, above all.
//
// Events are values, and subscribers are functions of their type:
//
//	unsubscribe := dispatch.Subscribe(dispatcher, func(ctx context.Context, event dispatch.DeadLettered) error {
//		return page(ctx, event.Queue, event.Reason)
//	})
//
// [Publish] calls them one after the other, in the order in which they
// subscribed, before it returns. A subscriber that fails or panics keeps no
// other from being told, and never reaches who did the work.
//
// [Trace] makes events of what mailboxes do: [Sent], [Received], [Settled],
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
// Nothing is kept for who subscribes later, and nothing is tried again. What
// must not get lost belongs into a mailbox.
package dispatch
