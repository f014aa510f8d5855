// Package bounds tests end to end: hostile and broken agents and principals, and that the honest ones beside them are spared.
//
// README.md tells what it runs on.
package bounds
