// Package guard keeps clients without a token within bounds on listeners that speak
// HTTP: how long their requests may take, and by which names they may reach the daemon.
package guard
