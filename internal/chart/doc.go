// Package chart tests the Helm chart, deploy/helm/mailbox.
package chart
