// Package live tests end to end: get, watch, exec, logs, port-forward and the tree of Argo CD, for people on the hub.
//
// README.md tells what it runs on.
package live
