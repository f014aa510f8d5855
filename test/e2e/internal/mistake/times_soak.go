//go:build linux && soak

package mistake

// timesDecide says whether a test fails when a mistake is told late: make soak runs one package
// at a time.
const timesDecide = true
