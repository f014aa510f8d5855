// Package identity tests end to end: SPIFFE IDs, the methods of authentication, and peers that are not what they say.
//
// README.md tells what it runs on.
package identity
