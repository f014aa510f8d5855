// Package spirepb is the part of the SPIRE server's API that we call: the services
// Entry, Bundle and TrustDomain with their messages, as SPIRE 1.15 has them on the
// wire. The proto files are our own; package names, service names, field numbers and
// types are SPIRE's, and the golden bytes of the test hold them. Package spire turns
// the messages into values and back.
package spirepb

//go:generate ./generate.sh
