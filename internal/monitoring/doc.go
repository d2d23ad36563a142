// Package monitoring tests what is in deploy/grafana and deploy/prometheus: that every
// query of a dashboard returns data from a daemon and from a worker under load, that every
// alert asks for series they export and fires in a test of promtool, and that
// docs/metrics.md lists what they export. It starts the Prometheus that
// make setup installs.
package monitoring
