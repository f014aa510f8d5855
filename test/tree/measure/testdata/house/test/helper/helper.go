// Package helper is below test/, and not counted.
package helper
