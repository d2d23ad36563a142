// Package urlrules tests mailbox.OpenURL with every scheme of this module, against real
// servers: the examples of docs/urls.md, and the errors that mistakes in a URL cause.
package urlrules
