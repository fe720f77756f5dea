"""What every layer needs: errors, types, validation of arguments, whole files."""
