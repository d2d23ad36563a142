// Package share divides one bounded resource among owners, so that no owner can
// use up what others need (OPS-4).
//
// A [Pool] counts units of one resource: messages in flight, queues, sessions,
// bytes, connections, quota meters. Owners form a tree. A [Path] names one from
// the root down: first the tenant, or the client's address where no token was
// shown, then the minted token, and below it whatever else a resource is divided
// by. The same rule holds at every level, for each child of a node with a limit:
//
//   - A child that is alone may hold all but a reserve of one eighth of the limit.
//   - Once a second child is active, none may take more than half. A child is
//     active while it holds something, and for [ActiveFor] after it last asked.
//   - Once only the reserve is left, a child may hold no more of it than it
//     leaves for others, so that a third and a fourth child find something too.
//   - A child may always hold one unit if one is free.
//
// What a child may hold is the limit that its own children are held to. Limits
// below eight have no reserve.
package share
