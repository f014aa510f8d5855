// Package install tests end to end: what the charts render and install, the rights of our roles, bad settings, the demo.
//
// README.md tells what it runs on.
package install
