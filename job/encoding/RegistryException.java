package streamjoin;

/** The schema registry does not answer, or refuses the login. */
public final class RegistryException extends RuntimeException {
  private final boolean refusesLogin;

  RegistryException(String message, boolean refusesLogin) {
    super(message);
    this.refusesLogin = refusesLogin;
  }

  public boolean refusesLogin() {
    return refusesLogin;
  }
}
