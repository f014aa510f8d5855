// Package connectivity is `agentctl connectivity test`: it tries what people do with a spoke through
// the hub, one step after the other, with the time that each takes, and leaves nothing behind. It
// does so as a person would: with a token of her own, by the resource proxy, the Redis proxy and the
// hub's Kubernetes API.
package connectivity
