// Package envoy tests end to end: what Envoy forwards, refuses and limits, by the configuration that the principal serves over xDS.
//
// README.md tells what it runs on.
package envoy
