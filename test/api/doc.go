// Package api tests the module api with what it must not depend on: the rules of package
// access, and the code with which an API server judges the definition of Agents.
package api
