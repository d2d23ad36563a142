// Package console is the web console of the daemon (CON-1, CON-2): pages for people,
// rendered on the server from typed elements, which escape what they contain.
//
// A token is the login. The console keeps it in a session in memory and gives the browser
// a cookie; each page makes a [broker.Caller] from the token and the request, and calls the
// same methods as the other surfaces. So permissions, tenants, shares, quotas and the audit
// log are those of the broker, and pages only hide what a token does not allow.
//
// GET requests change nothing. A change is asked for on a confirmation page, which says
// what it will touch, and made by a POST with the CSRF token of the session.
//
// All pages have one path segment and link to each other by relative references, so a
// Handler works under any prefix, also behind a proxy that removes it.
//
// Pages work without the script. With it, the parts of a page that are marked live are
// replaced as they change, by server-sent events.
package console
