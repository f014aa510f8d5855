// Package roles is what RBAC an agent needs on its spoke, by its configuration. It is pure.
package roles
